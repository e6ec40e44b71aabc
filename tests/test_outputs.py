"""One rule for every file that gputop writes: nothing is replaced without --force, nothing is left half."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.errors import GputopError
from gputop.files.output_files import clear_segments, new_file, new_session, refuse_existing
from gputop.ui.exports import free_name
from probes.source import MARK, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import inside, made_traces
from tests.cli_support import run

RECORDINGS = Path(__file__).parents[1] / "recordings"
FILE = str(RECORDINGS / "dataloader.msgpack")  # a small one
OLD = b"precious"

# each writes out of a recording; the trace is made where it is needed
WRITERS: dict[str, tuple[str, ...]] = {
    "cut": ("cut", FILE, "--to", "1"),
    "merge": ("merge", FILE),
    "redact": ("redact", FILE),
    "repair": ("repair", FILE),
    "import": ("import", "trace.json"),
    "perfetto": ("export", FILE, "--to", "perfetto"),
    "speedscope": ("export", FILE, "--to", "speedscope"),
    "report": ("report", FILE),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made_traces.kineto(tmp_path / "trace.json")
    return tmp_path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two pages."""
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(disk)], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_what_is_there_stays_unless_force_is_typed(name: str, here: Path) -> None:
    out = here / "out"
    out.write_bytes(OLD)
    refused = inside.run(*WRITERS[name], "-o", "out")
    assert (refused.returncode, out.read_bytes()) == (1, OLD)
    assert "out exists already, and is left as it is: choose another name, or --force" in refused.stderr
    forced = inside.run(*WRITERS[name], "-o", "out", "--force")
    assert forced.returncode == 0, forced.stderr
    assert out.stat().st_size > 1000
    assert sorted(os.listdir(here)) == ["out", "trace.json"], "nothing is left beside it"


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_an_empty_file_as_of_mktemp_is_filled(name: str, here: Path) -> None:
    (here / "out").touch()
    assert inside.run(*WRITERS[name], "-o", "out").returncode == 0
    assert (here / "out").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_on_a_full_disk_nothing_is_left_and_nothing_is_claimed(
    name: str, here: Path, small_disk: Path
) -> None:
    old = small_disk / "old"
    old.write_bytes(OLD)
    (small_disk / "other").write_bytes(OLD)
    for words in ((str(small_disk / "new"),), (str(old), "--force")):
        done = inside.run(*WRITERS[name], "-o", *words)
        assert done.returncode == 1, done.stderr
        assert "safe" not in done.stderr
        assert "replayed" not in done.stderr
        assert f"{words[0]} cannot be written: " in done.stderr
        assert "nothing of it is left" in done.stderr
    assert (sorted(os.listdir(small_disk)), old.read_bytes()) == (["old", "other"], OLD)


@pytest.mark.slow
def test_a_file_can_be_repaired_in_its_own_place(here: Path) -> None:
    whole = (RECORDINGS / "storm.msgpack").read_bytes()
    (here / "run").write_bytes(whole[: len(whole) // 2])
    assert inside.run("repair", "run", "-o", "run", "--force").returncode == 0
    assert "intact" in inside.run("verify", "run").stdout + inside.run("verify", "run").stderr


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_folder_of_tables_is_replaced_by_force_and_no_other_folder_is(form: str, here: Path) -> None:
    pytest.importorskip("pyarrow") if form == "parquet" else None
    words = ("export", FILE, "--to", form, "-o", "out")
    assert inside.run(*words).returncode == 0
    names = sorted(os.listdir("out"))
    (here / "out" / names[0]).write_bytes(OLD)
    assert "exists already" in inside.run(*words).stderr
    assert inside.run(*words, "--force").returncode == 0
    assert (sorted(os.listdir("out")), (here / "out" / names[0]).read_bytes() == OLD) == (names, False)
    (here / "out" / "thesis.tex").write_bytes(OLD)
    refused = inside.run(*words, "--force")
    assert (refused.returncode, "holds thesis.tex" in refused.stderr) == (1, True)
    assert (here / "out" / "thesis.tex").read_bytes() == OLD


@pytest.mark.slow
def test_what_is_no_regular_file_is_never_replaced(here: Path) -> None:
    (here / "link").symlink_to("trace.json")
    os.mkfifo("pipe")
    for name in ("link", "pipe"):
        assert inside.run("report", FILE, "-o", name).returncode == 1
        refused = inside.run("report", FILE, "-o", name, "--force")
        assert f"{name} is not a regular file, and is left as it is" in refused.stderr
    os.mkdir("others")
    os.mkfifo("others/pipe")
    assert "holds pipe" in inside.run("export", FILE, "--to", "csv", "-o", "others", "--force").stderr


def test_a_failure_leaves_the_old_file(here: Path) -> None:
    (here / "out").write_bytes(OLD)

    def fail_in_a_file() -> None:
        with new_file("out", force=True) as file:
            file.write(b"half")
            raise ZeroDivisionError

    def fail_in_a_session() -> None:
        with new_session("out", {}, force=True) as writer:
            writer.write(Sample(MARK, 1, {}))
            raise ZeroDivisionError

    for fail in (fail_in_a_file, fail_in_a_session):
        with pytest.raises(ZeroDivisionError):
            fail()
        assert (sorted(os.listdir(here)), (here / "out").read_bytes()) == (["out", "trace.json"], OLD)


def test_segments_are_cleared_by_force_and_other_files_are_not(here: Path) -> None:
    os.mkdir("run")
    refuse_existing("run", force=False)  # empty: nothing to lose
    with SessionWriterAt("run/00001.gputop"):
        pass
    with pytest.raises(GputopError, match="exists already"):
        refuse_existing("run", force=False)
    (here / "run" / "notes").write_bytes(OLD)
    with pytest.raises(GputopError, match="holds notes"):
        clear_segments("run")
    os.remove("run/notes")
    (here / "run" / "mine.gputop").write_bytes(OLD)
    clear_segments("run")
    assert os.listdir("run") == ["mine.gputop"], "only what begins as a recording is taken away"


class SessionWriterAt:
    """A recording with a frame."""

    def __init__(self, path: str) -> None:
        self._writer = SessionWriter(path, {})

    def __enter__(self) -> None:
        self._writer.write(Sample(MARK, 1, {}))

    def __exit__(self, *_: object) -> None:
        self._writer.close()


@pytest.mark.parametrize(
    "words",
    [
        ("record", "-o", "old", "--", "touch", "ran"),
        ("record", "-o", "segments", "--max-time", "5", "--", "touch", "ran"),
        ("--once", "--record", "old", "--", "touch", "ran"),
        ("dump", "-o", "old"),
    ],
)
def test_what_observes_refuses_before_it_observes(words: tuple[str, ...], here: Path) -> None:
    os.mkdir("segments")
    for name in ("old", "segments/00001.gputop"):
        (here / name).write_bytes(Path(FILE).read_bytes())
    done = run(*words)
    assert done.returncode == 1
    assert "exists already, and is left as it is" in done.stderr
    assert "--force" in done.stderr
    assert not os.path.exists("ran"), "the program was not started"
    for name in ("old", "segments/00001.gputop"):
        assert (here / name).read_bytes() == Path(FILE).read_bytes()


@pytest.mark.ebpf
@pytest.mark.parametrize("words", [("record", "-o", "old"), ("record", "-o", "segments", "--max-time", "5")])
def test_record_replaces_by_force(words: tuple[str, ...], here: Path) -> None:
    os.mkdir("segments")
    for name in ("old", "segments/00001.gputop", "segments/00007.gputop"):
        (here / name).write_bytes(Path(FILE).read_bytes())
    assert run(*words, "--stacks", "off", "--force", "--", "true").returncode == 0
    fresh = SessionReader(words[2] if words[2] == "old" else "segments/00001.gputop")
    fresh.close()
    assert fresh.header["command"] == ["true"]
    assert os.listdir("segments") == ["00001.gputop"] or words[2] == "old"


def test_a_name_that_is_taken_leads_to_a_free_one(here: Path) -> None:
    assert free_name("trace.json.new") == "trace.json.new"
    assert free_name("trace.json") == "trace-2.json"
    (here / "trace-2.json").touch()
    assert free_name("trace.json") == "trace-3.json"
