"""What lies under the name of a file may be a pipe, a link, nonsense or nothing: it costs a sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from gputop.errors import GputopError
from gputop.fleet.ingest import ingest
from gputop.fleet.lake import storage
from gputop.process.child import Identity
from gputop.query.catalogue import Catalogue
from gputop.query.database import LockedDatabase
from gputop.query.forked import in_child
from probes.proc.procfs import descendants
from replay import folders
from replay.segments import SegmentsReader
from replay.size_breakdown import census
from tests import inside
from tests.conftest import needed
from tests.gputop_command import GPUTOP
from tests.rootless_support import NOBODY
from tests.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "recordings" / "healthy.msgpack"
PATIENCE_S = 60.0
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: needs root")


def in_time(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A gputop that must not wait for who writes into a pipe."""
    return subprocess.run(
        [*GPUTOP, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=cwd
    )


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    needed("duckdb")
    assert ingest([str(RECORDING)], str(tmp_path / "lake"), 1).explained == 1
    return tmp_path / "lake"


# -- pipes --------------------------------------------------------------------------------------------


def test_only_regular_files_are_opened_and_links_where_they_may_lead(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("it")
    (tmp_path / "link").symlink_to("file")
    for name in ("pipe", "."):
        with pytest.raises(OSError, match="not a regular file"):
            folders.opened(str(tmp_path / name))
    os.close(folders.opened(str(tmp_path / "link")))
    with pytest.raises(OSError, match="symbolic link"):
        folders.opened(str(tmp_path / "link"), follow=False)


@pytest.mark.slow
def test_pipes_among_recordings_stop_no_ingest(tmp_path: Path) -> None:
    needed("duckdb")
    folder, pipes = tmp_path / "sessions", ("pipe.msgpack", "pipe.gputop", "segments/00001.gputop")
    (folder / "segments").mkdir(parents=True)
    for name in pipes:
        os.mkfifo(folder / name)
    shutil.copy(RECORDING, folder / "one.msgpack")
    done = in_time("fleet", "ingest", str(folder), "--workers", "1", "--into", str(tmp_path / "lake"))
    assert "1 session explained" in done.stderr
    assert done.stderr.count("regular file") == len(pipes)


@pytest.mark.slow
@pytest.mark.mainly("asks0-json", "asks1-parquet")
@pytest.mark.parametrize("ending", ["json", "parquet"])
@pytest.mark.parametrize("asks", [("overview",), ("sql", "SELECT count(*) FROM sessions")])
def test_a_pipe_in_a_lake_stops_no_question(lake: Path, ending: str, asks: tuple[str, ...]) -> None:
    where = lake / ("pieces" if ending == "json" else "sessions")
    file = next(where.rglob(f"*.{ending}"))
    file.unlink()
    os.mkfifo(file)
    done = in_time("fleet", asks[0], str(lake), *asks[1:])
    assert done.returncode not in (0, -9) or "overview" in asks
    assert "Traceback" not in done.stderr
    assert "regular file" in done.stderr or done.returncode == 0


def test_a_file_without_end_in_a_lake_is_refused_before_it_is_read(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hole costs its owner nothing: a terabyte was read until the memory was full."""
    needed("duckdb")
    file = next((lake / "pieces").rglob("*.json"))
    monkeypatch.setattr(storage, "MOST_BYTES", most := 1 << 20)
    os.truncate(file, 1 << 40)
    tracemalloc.start()
    try:
        with pytest.raises(GputopError, match="cannot be read: File too large"):
            storage.place_of(str(lake)).read([os.path.relpath(file, lake)])
        assert tracemalloc.get_traced_memory()[1] < 8 * most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("command", ["explain", "import", "verify", "inspect", "stats"])
def test_a_pipe_in_place_of_a_recording_is_refused(command: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    more = ("-o", str(tmp_path / "out")) if command == "import" else ()
    done = in_time(command, str(tmp_path / "pipe"), *more)
    assert done.returncode not in (0, None)
    assert "not a regular file" in done.stderr


# -- links --------------------------------------------------------------------------------------------


def segments(folder: Path, *, link: Path) -> Path:
    """A recording in segments, of which one is a link."""
    folder.mkdir()
    shutil.copy(RECORDING, folder / "00001.gputop")
    (folder / "00002.gputop").symlink_to(link)
    return folder


def test_a_link_among_segments_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.msgpack"
    shutil.copy(ROOT / "recordings" / "storm.msgpack", secret)
    folder = segments(tmp_path / "segments", link=secret)
    reader = SegmentsReader(folder)
    assert any("symbolic link" in text for text in reader.problems)
    assert len(reader.readers) == 1
    reader.close()
    assert census(str(folder)).kinds == census(str(RECORDING)).kinds
    found = Catalogue([str(tmp_path)])
    assert "storm" not in json.dumps(found.get("segments").inspected(), default=str)


# -- folders ------------------------------------------------------------------------------------------


@as_root
def test_root_makes_no_folder_through_a_link_of_somebody_else(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    theirs, secret = tmp_path / "theirs", tmp_path / "secret"
    for folder in (theirs, secret):
        folder.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    (theirs / "way").symlink_to(secret)
    os.chown(theirs / "way", NOBODY, NOBODY, follow_symlinks=False)
    commands = (
        ("fleet", "ingest", str(RECORDING), "--workers", "1", "--into", str(theirs / "way" / "lake")),
        ("export", str(RECORDING), "--to", "csv", "-o", str(theirs / "way" / "tables")),
    )
    for words in commands:
        done = inside.run(*words)
        assert done.returncode != 0
        assert "link of another user" in done.stderr
        assert [*secret.iterdir()] == []


@pytest.mark.parametrize("words", [("record", "-o", "x", "--duration", "1"), ("stats", "x"), ("demo",)])
def test_in_a_folder_that_was_removed_there_is_a_sentence(words: tuple[str, ...], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    enters = (
        "import os, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", enters, str(gone), *GPUTOP, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "should not have happened" not in done.stderr
    assert "Traceback" not in done.stderr
    if words[0] == "record":
        assert "the working directory was removed" in done.stderr


# -- what a query takes -------------------------------------------------------------------------------

UNINTERRUPTED = (
    "SELECT sum(length(repeat(i::VARCHAR, 3000000))) FROM range(2048) t(i)",
    "SELECT regexp_replace(repeat('a', 300000000), 'a', 'bb', 'g')",
    "SELECT list_sum(list_transform(range(60000000), lambda x: x * x))",
)


@pytest.mark.slow
@pytest.mark.parametrize("query", UNINTERRUPTED)
def test_a_query_that_heeds_nothing_ends_in_time(query: str) -> None:
    """The database looks up between two pieces of work only, and one piece can take minutes."""
    needed("duckdb")
    database = LockedDatabase(lambda connection: connection.execute("CREATE TABLE t AS SELECT 7 AS seven"))
    began = time.monotonic()
    with pytest.raises(GputopError, match=r"longer than 1 s|memory"):
        database.query(query, 5, 1.0)
    assert time.monotonic() - began < 8
    assert database.query("SELECT seven FROM t", 5, 30.0).rows == ((7,),)
    database.close()


def test_a_fork_that_ends_or_fails_is_an_error_and_leaves_nobody() -> None:
    before, children = set(os.listdir("/proc/self/fd")), descendants((os.getpid(),))
    with pytest.raises(MemoryError):
        in_child(lambda: os._exit(1), 10.0)
    with pytest.raises(KeyError, match="it"):
        in_child(lambda: {}["it"], 10.0)
    with pytest.raises(TimeoutError):
        in_child(lambda: time.sleep(60), 0.1)
    assert in_child(lambda: [1, "two"], 10.0) == [1, "two"]
    assert set(os.listdir("/proc/self/fd")) == before
    assert descendants((os.getpid(),)) == children


# -- whose a recording is -----------------------------------------------------------------------------


@as_root
def test_a_dump_belongs_to_who_called_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gputop.commands.daemon import dump

    os.chown(tmp_path, NOBODY, NOBODY)
    for folder in tmp_path.parents:  # one more of them where pytest has workers
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o055)
    user = Identity(NOBODY, NOBODY, "them", str(tmp_path))
    monkeypatch.setattr(dump, "behind_sudo", lambda: user)

    class Daemon:
        def __init__(self, *_words: object, **_more: object) -> None:
            """Has two messages."""

        def messages(self) -> list[dict[str, object]]:
            return [{"k": "header", "data": {"start_ns": 1}}, {"k": "done"}]

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(dump, "Connection", Daemon)
    assert inside.run("dump", "-o", str(tmp_path / "x.msgpack")).returncode == 0
    assert (tmp_path / "x.msgpack").stat().st_uid == NOBODY


# -- NVML that is none --------------------------------------------------------------------------------

GARBAGE = """
import json, sys
import pynvml
from gputop.checks.check_nvml import read_nvml
from probes.nvml import nvml_errors

def garbage(*_words):
    raise UnicodeDecodeError("utf-8", b"\\xff", 0, 1, "invalid start byte")

for name in sys.argv[1].split(","):
    setattr(pynvml, name, garbage)
pynvml.nvmlInit = lambda: None
for name in ("nvmlDeviceGetCount",):
    if name not in sys.argv[1]:
        setattr(pynvml, name, lambda: 1)
if "nvmlSystemGetDriverVersion" not in sys.argv[1]:
    pynvml.nvmlSystemGetDriverVersion = lambda: "1"
if "nvmlDeviceGetHandleByIndex" not in sys.argv[1]:
    pynvml.nvmlDeviceGetHandleByIndex = lambda _index: 1
class Loud(pynvml.NVMLError):
    def __str__(self):
        garbage()
print(json.dumps([read_nvml().error, nvml_errors.reason_of(Loud(999))]))
"""


@pytest.mark.parametrize(
    "broken",
    ["nvmlSystemGetDriverVersion", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"],
)
def test_nvml_that_answers_no_text_is_a_sentence(broken: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GARBAGE, broken], capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "UnicodeDecodeError" not in done.stderr + done.stdout
    if broken != "nvmlDeviceGetName":
        assert "no text" in done.stdout
