"""Changes the code in small wrong ways and looks whether the tests notice: ``make mutants``.

A sample of each file of modules.toml, drawn by a seed, in a copy of the tree; the changes are cosmic-ray's.
Which of them survive and why is in docs/mutation.md, which ``--write`` makes from the outcome and from
explained.toml. Exit status 1: one survives that nobody has explained.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomllib

from tests.mutants import report
from tests.mutants.choose import chosen
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
_PATIENCE = 10  # times the CPU that the intact file takes
_LEAST_CPU_S = 5


class Tests:
    """The tests, in a copy of the tree that nobody else uses."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self._server = subprocess.Popen(
            [str(ROOT / ".venv/bin/python"), "-m", "tests.mutants.server"],
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, tests: list[str], cpu_s: int) -> dict[str, Any]:
        """Exit status of pytest, or minus the signal that ended it, and the CPU seconds."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({"tests": tests, "cpu_s": cpu_s}) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def close(self) -> None:
        """Ends it."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()


@contextmanager
def _copy() -> Iterator[Path]:
    """The files of the working tree that git knows or would know, elsewhere."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    with tempfile.TemporaryDirectory(prefix="gputop-mutants-") as name:
        for path in filter(None, listed.stdout.split("\0")):
            if (ROOT / path).is_file():
                target = Path(name, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, target)
        yield Path(name)


def _judged(tests: Tests, name: str, files: list[str], mutants: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Each mutant of a file with what became of it: "killed", "endless" or "survived"."""
    target = tests.tree / name
    intact = target.read_text(encoding="utf-8")
    words = [f"tests/{word}" if word.endswith(".py") else word for word in files]
    plain = tests.run(words, 600)
    if plain["status"] != 0:
        raise SystemExit(f"{name}: its tests fail before anything is changed (status {plain['status']})")
    limit = max(int(_PATIENCE * plain["cpu_s"]), _LEAST_CPU_S)
    for mutant in mutants:
        target.write_text(mutant.code, encoding="utf-8")
        try:
            status = tests.run(words, limit)["status"]
        finally:
            target.write_text(intact, encoding="utf-8")
        yield mutant, "survived" if status == 0 else "endless" if status < 0 else "killed"


def main() -> int:
    """Runs what the command line names."""
    rows = tomllib.loads((HERE / "modules.toml").read_text())
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="FILE", help="all of modules.toml without any")
    parser.add_argument("--sample", type=int, default=40, help="mutants of a file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="only what has survived so far")
    parser.add_argument("--results", type=Path, default=ROOT / "build/mutants.jsonl", help="a line a mutant")
    parser.add_argument("--write", action="store_true", help="docs/mutation.md, from all results so far")
    options = parser.parse_args()
    wrong = [name for name in options.modules if name not in rows]
    if wrong:
        parser.error(f"{wrong[0]} is not in modules.toml")
    results = report.Results(options.results)
    if not options.write:
        with _copy() as tree:
            tests = Tests(tree)
            try:
                for name in options.modules or rows:
                    mutants = chosen(tree / name, name, options.sample, options.seed)
                    results.forget(name, but=mutants if options.again else [])
                    mutants = [one for one in mutants if results.outcome(one) in (None, "survived")]
                    for part in ("tests", "then"):
                        if mutants and part in rows[name]:
                            for mutant, outcome in _judged(tests, name, rows[name][part], mutants):
                                results.put(mutant, outcome)
                            mutants = [one for one in mutants if results.outcome(one) == "survived"]
                    print(results.line(name), flush=True)
            finally:
                tests.close()
    open_ones = results.open()
    for one in open_ones:
        print(f"{one['path']}:{one['line']}: {one['was']}  ->  {one['becomes']}")
    if options.write:
        (ROOT / "docs/mutation.md").write_text(results.page(rows))
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
