"""``gputop fleet``: each recording is explained once; what goes wrong is told, and changes nothing else."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from gputop.commands import cli
from gputop.errors import GputopError, SessionTooNewError
from gputop.fleet import explain_task
from gputop.fleet.ingest import Ingested, ingest
from gputop.fleet.lake import storage
from gputop.fleet.lake.lake import adding_to, open_lake
from gputop.fleet.lake.lake_tables import COLUMNS
from gputop.fleet.lake.pieces import Piece
from gputop.fleet.lake.questions import GROUPS, overview
from tests.conftest import needed
from tests.fleet_lakes import asked, content
from tests.waiting import until_good

ROOT = Path(__file__).resolve().parents[1]
RECORDINGS = ROOT / "recordings"
PLANTED = {"dataloader": "C12", "numpy-sync": "C02", "redundant-to-device": "C05"}  # recordings/README.md
TORN_AT = 0.7  # of a file


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions with planted faults, a healthy one, one twice, one torn, one that is none."""
    needed("duckdb")
    needed("pyarrow")
    folder = tmp_path_factory.mktemp("fleet")
    for name in (*PLANTED, "healthy"):
        shutil.copy(RECORDINGS / f"{name}.msgpack", folder)
    shutil.copy(RECORDINGS / "healthy.msgpack", folder / "twice.msgpack")
    whole = (RECORDINGS / "dataloader.msgpack").read_bytes()
    (folder / "torn.msgpack").write_bytes(whole[: int(TORN_AT * len(whole))])
    (folder / "nonsense.msgpack").write_bytes(b"this is no recording")
    return folder


@pytest.fixture(scope="module")
def lake(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ingested]:
    """The lake of all of them, and what the run said."""
    folder = tmp_path_factory.mktemp("lakes") / "lake"
    return folder, ingest([str(fleet)], str(folder), 1)


def test_the_cause_that_was_planted_costs_most_in_its_session_and_nothing_in_a_healthy_one(
    lake: tuple[Path, Ingested],
) -> None:
    rows = asked(
        lake[0],
        "SELECT s.path, arg_max(f.cause, f.loss_ns) FROM sessions s LEFT JOIN findings f USING (session_id) "
        "GROUP BY s.path",
    )
    found = {Path(path).stem: cause for path, cause in rows}
    assert {name: found[name] for name in PLANTED} == PLANTED
    assert found["torn"] == PLANTED["dataloader"]
    assert found["healthy"] is None


def test_what_is_torn_is_explained_and_reported_and_what_is_no_recording_is_reported(
    lake: tuple[Path, Ingested],
) -> None:
    told = {(Path(str(row["path"])).name, row["what"]) for row in lake[1].problems}
    assert told == {("torn.msgpack", "torn"), ("nonsense.msgpack", "unreadable")}
    kept = {(Path(path).name, what) for path, what in asked(lake[0], "SELECT path, what FROM problems")}
    assert kept == told


def test_a_content_is_taken_once_and_a_second_run_takes_nothing(
    fleet: Path, lake: tuple[Path, Ingested]
) -> None:
    assert (lake[1].explained, lake[1].known) == (len(PLANTED) + 2, 1)
    before, pieces = content(lake[0]), sorted(lake[0].rglob("*"))
    again = ingest([str(fleet)], str(lake[0]), 1)
    assert (again.explained, again.known, again.problems) == (0, len(list(fleet.iterdir())), ())
    assert (content(lake[0]), sorted(lake[0].rglob("*"))) == (before, pieces)


@pytest.mark.long
def test_a_worker_that_is_killed_changes_nothing(
    fleet: Path, lake: tuple[Path, Ingested], tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            for children in Path("/proc/self/task").glob("*/children"):
                for pid in map(int, children.read_text().split()):
                    if b"gputop.parts" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    done = ingest([str(fleet)], str(tmp_path / "lake"), 1)
    killer.join()
    assert killed
    assert done.explained == lake[1].explained
    assert content(tmp_path / "lake") == content(lake[0])


def test_a_run_that_ends_while_it_writes_leaves_nothing_and_the_next_takes_all(
    tmp_path: Path, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lake"
    one = str(fleet / "healthy.msgpack")

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Piece, "packed", ended)
        patch.setattr(storage.os, "unlink", lambda *_, **__: None)  # as when it is killed
        with pytest.raises(KeyboardInterrupt):
            ingest([one], str(folder), 1)
    assert [*folder.rglob("*.parquet")]
    assert asked(folder, "SELECT * FROM sessions") == []
    assert ingest([one], str(folder), 1).explained == 1
    (piece,) = (folder / "pieces").iterdir()
    assert {file.stem for file in folder.rglob("*.parquet")} == {piece.stem}


def test_a_file_that_a_newer_gputop_may_read_is_reported_and_tried_again(
    tmp_path: Path, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_new(_path: str) -> None:
        raise SessionTooNewError("a newer gputop recorded it")

    file = str(fleet / "healthy.msgpack")
    monkeypatch.setattr(explain_task, "open_session", too_new)
    task = explain_task.Task(file, explain_task.content_hash(file))
    (row,) = explain_task.explain_task(task).rows["problems"]
    assert (row["what"], row["session_id"]) == ("unreadable", None)


def test_a_file_that_changes_while_it_is_read_is_not_taken(fleet: Path) -> None:
    task = explain_task.Task(str(fleet / "healthy.msgpack"), "hash of what it was")
    outcome = explain_task.explain_task(task)
    assert outcome.rows["sessions"] == ()
    assert [(row["what"], row["session_id"]) for row in outcome.rows["problems"]] == [("unreadable", None)]


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with adding_to(str(tmp_path / "lake")), pytest.raises(GputopError, match="another run"):
        ingest([], str(tmp_path / "lake"), 1)


@pytest.mark.parametrize("by", GROUPS)
def test_the_hours_of_each_grouping_are_those_of_all_idle_findings(
    by: str, lake: tuple[Path, Ingested]
) -> None:
    database = open_lake(str(lake[0]))
    try:
        answer = database.query(overview(by), 1000, 60)
    finally:
        database.close()
    hours = [row[answer.columns.index("gpu_hours")] for row in answer.rows]
    (whole,) = asked(lake[0], "SELECT sum(loss_ns) / 3.6e12 FROM findings WHERE kind = 'idle'")
    assert hours == sorted(hours, reverse=True)
    assert sum(hours) == pytest.approx(whole[0])


@pytest.mark.parametrize(
    "query", ["SELECT * FROM read_text('/etc/hostname')", "DROP TABLE sessions", "SELECT 1; SELECT 2"]
)
def test_a_query_reads_the_tables_and_nothing_else(query: str, lake: tuple[Path, Ingested]) -> None:
    with pytest.raises(GputopError):
        asked(lake[0], query)


def test_a_query_takes_no_more_memory_than_it_may(lake: tuple[Path, Ingested]) -> None:
    code = (
        "import resource, sys; from gputop.commands.cli import run; own = resource.RLIMIT_DATA\n"
        "before = resource.getrlimit(own)[0]; run(sys.argv[1:], own_process=True)\n"
        "print(before, resource.getrlimit(own)[0])"
    )
    command = [sys.executable, "-c", code, "fleet", "sql", str(lake[0]), "SELECT 1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, now = map(int, done.stdout.splitlines()[-1].split())
    assert 0 < now < 16 << 30
    assert before in (-1, resource.RLIM_INFINITY) or now <= before


def test_the_command_ends_with_1_when_a_file_cannot_be_read(
    tmp_path: Path, fleet: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["fleet", "ingest", str(fleet / "nonsense.msgpack"), "--into", str(tmp_path / "lake")]
    assert cli.run(words) == 1
    assert "unreadable" in capfd.readouterr().err


def test_the_page_shows_every_column() -> None:
    page = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    for table, columns in COLUMNS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{table}` |")]
        assert all(f"`{name}`" in row for name in columns)


@pytest.mark.long
def test_cost_grows_no_faster_than_the_number_of_sessions(tmp_path: Path) -> None:
    needed("duckdb")
    needed("pyarrow")
    whole = [path.read_bytes() for path in sorted(RECORDINGS.glob("*.msgpack"))]
    for rounds in (2, 8):
        folder = tmp_path / str(rounds)
        folder.mkdir()
        for torn in range(rounds):  # each round loses a little more of the end, so that none is there twice
            for number, data in enumerate(whole):
                (folder / f"{torn}-{number}.msgpack").write_bytes(data[: len(data) - torn * len(data) // 500])

    def cost(rounds: int, turn: int) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = ingest([str(tmp_path / str(rounds))], str(tmp_path / f"lake-{rounds}-{turn}"), 1)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.explained == rounds * len(whole)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    turns = count()
    grown = until_good(
        lambda: cost(8, turn := next(turns)) / (4 * cost(2, turn)), lambda found: found < 1.3, seconds=120
    )
    assert grown < 1.3
