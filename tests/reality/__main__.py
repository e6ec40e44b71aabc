"""``make real-traces ARGS="FOLDER… [--write]"``: traces of real GPUs against what gputop says.

A file ``SOURCES.txt`` in a folder (name, repository, … in columns) becomes the list of where they are from.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from gputop.errors import GputopError
from tests.gpu_check.page import MARK
from tests.reality.blind import Blind, blinded
from tests.reality.judge import Judged, judged
from tests.reality.table import blind_row, blind_summary, exact_row, page, summary, worst

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "real-gpus.md"
BESIDE = ROOT.parent / "shared" / "data" / "traces"
ENDS = (".json", ".json.gz", ".sqlite")
EXACT = 0.95  # of the files, for which a class must be named


def main() -> int:
    """Runs it; 0 when every requirement holds."""
    parser = argparse.ArgumentParser(prog="make real-traces", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[BESIDE])
    parser.add_argument("--only", default="", help="files whose name holds this")
    parser.add_argument("--most", type=int, default=1 << 62, metavar="BYTES", help="leave larger files out")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    rows: list[Judged] = []
    blind: list[Blind] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for path in traces(options.folders):
            if options.only in path.name and path.stat().st_size <= options.most:
                _one(path, Path(folder), rows, blind, failures)
    counts = [*summary(rows), *blind_summary(blind)]
    for what, good, whole in counts:
        print(f"{what}: {good} of {whole}")
    for text in failures:
        print(text)
    if options.write:
        _before, mark, live = PAGE.read_text(encoding="utf-8").partition(
            MARK
        )  # what make gpu-check has written
        PAGE.write_text(page(rows, blind, sources(options.folders)) + mark + live, encoding="utf-8")
    named, wanted = next((good, whole) for what, good, whole in counts if what.startswith("a class is named"))
    others = [(good, whole) for what, good, whole in counts if not what.startswith("a class is named")]
    met = named >= EXACT * wanted and all(good == whole for good, whole in others)
    return 0 if rows and met and not failures else 1


def _one(path: Path, folder: Path, rows: list[Judged], blind: list[Blind], failures: list[str]) -> None:
    try:
        row = judged(path, folder)
        if row is None:
            return
        rows.append(row)
        print(exact_row(row), end="", flush=True)
        found = list(blinded(folder / f"{path.name}.msgpack", path.name))
        blind += found
        for one in worst(found):
            print(f"  blind {blind_row(one)}", end="", flush=True)
    except (GputopError, AssertionError, ValueError, KeyError) as error:
        failures.append(f"{path.name}: {type(error).__name__}: {error}")
        print(failures[-1], flush=True)
    finally:
        (folder / f"{path.name}.msgpack").unlink(missing_ok=True)


def traces(folders: list[Path]) -> list[Path]:
    """The traces in these folders, the smaller ones first."""
    found = [path for folder in folders for path in sorted(folder.iterdir()) if path.name.endswith(ENDS)]
    return sorted(found, key=lambda path: path.stat().st_size)


def sources(folders: list[Path]) -> list[str]:
    """Repositories, with how many files of each."""
    counts: dict[str, int] = {}
    for folder in folders:
        listed = folder / "SOURCES.txt"
        for line in listed.read_text(encoding="utf-8").splitlines() if listed.exists() else ():
            name, repository = line.split("\t")[:2]
            if (folder / name).exists():
                counts[repository] = counts.get(repository, 0) + 1
    return [f"{name}: {count} file{'s' * (count != 1)}" for name, count in sorted(counts.items())]


if __name__ == "__main__":
    sys.exit(main())
