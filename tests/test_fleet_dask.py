"""``gputop fleet ingest`` on Dask: the same rows, whoever explains and whoever dies meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gputop.commands import cli
from gputop.errors import GputopError
from gputop.fleet import on_dask
from gputop.fleet.explain_task import WORKER_MEMORY, ExplainOutcome, Task
from gputop.fleet.ingest import ingest
from gputop.fleet.on_dask import ADDRESS, dask
from gputop.fleet.workers import Engine, begin
from gputop.parts.mapreduce import processors
from tests.conftest import needed
from tests.fleet_jobs import CPU, QUEUE, Job, record
from tests.fleet_lakes import content, scheduler, worker
from tests.gputop_command import GPUTOP
from tests.waiting import HANGS_S, wait_until

pytestmark = pytest.mark.slow  # clusters start processes, from threads of their own
JOBS = (Job(1, late=1, ms=9, how=CPU), Job(2), Job(3, late=0, ms=7, how=QUEUE), Job(4, one_host=True))
MANY = 1000
RANKS = sum(job.ranks for job in JOBS)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ranks of four jobs, one of them twice, and a file that is no recording."""
    for module in ("duckdb", "pyarrow", "distributed", "cryptography"):
        needed(module)
    folder = tmp_path_factory.mktemp("ranks")
    for seed, job in enumerate(JOBS):
        record(folder, job, seed)
    shutil.copy(folder / "1-0.gputop", folder / "twice.gputop")
    (folder / "nonsense.gputop").write_bytes(b"this is no recording")
    return folder


@pytest.fixture(scope="module")
def pool(sessions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake that a process of this machine makes of them."""
    lake = tmp_path_factory.mktemp("lakes") / "pool"
    assert ingest([str(sessions)], str(lake), 1).explained == RANKS
    return lake


def after_one(engine: Engine, do: Callable[[], None]) -> Engine:
    """The same, but something is done when the first recording is explained."""

    def outcomes(
        tasks: Sequence[Task], stopped: Callable[[], bool]
    ) -> Iterator[tuple[Task, ExplainOutcome | None]]:
        for number, found in enumerate(engine(tasks, stopped)):
            if number == 0:
                do()
            yield found

    return outcomes


@pytest.mark.long
def test_a_cluster_of_this_machine_finds_what_the_pool_finds_though_a_worker_is_killed(
    sessions: Path, pool: Path, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill() -> None:
        victim = multiprocessing.active_children()[0]
        victim.kill()
        killed.append(victim.pid or 0)

    with dask(None, 2, lambda _text: None) as engine:
        done = ingest([str(sessions)], str(tmp_path / "lake"), 1, engine=after_one(engine, kill))
        again = ingest([str(sessions)], str(tmp_path / "lake"), 1, engine=engine)
    assert killed
    assert (done.explained, done.known, done.left) == (RANKS, 1, 0)
    assert content(tmp_path / "lake") == content(pool)
    assert (again.explained, again.known) == (0, RANKS + 2)
    assert multiprocessing.active_children() == []


@pytest.mark.long
def test_workers_of_a_scheduler_find_what_the_pool_finds_though_one_is_killed(
    sessions: Path, pool: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        address, _process = stack.enter_context(scheduler())
        workers = [stack.enter_context(worker(address)) for _ in range(2)]
        with dask(address, 1, lambda _text: None) as engine:
            killing = after_one(engine, workers[0].kill)
            done = ingest([str(sessions)], str(tmp_path / "lake"), 1, engine=killing)
        assert workers[0].wait() == -signal.SIGKILL
        assert done.explained == RANKS
        assert content(tmp_path / "lake") == content(pool)


@pytest.mark.long
def test_a_recording_over_which_workers_die_takes_no_other_with_it_and_is_tried_again(
    sessions: Path, pool: Path, tmp_path: Path
) -> None:
    deadly = tmp_path / "deadly.gputop"
    shutil.copy(sessions / "1-0.gputop", deadly)
    with deadly.open("ab") as file:
        file.write(b"other content")
    preload = ["--preload", str(Path(__file__).with_name("deadly_recording.py"))]
    with ExitStack() as stack:
        # each death is one worker less: one blames the batch, one more the recording
        address, _process = stack.enter_context(scheduler(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0"))
        for _ in range(3):
            stack.enter_context(worker(address, *preload))
        with dask(address, 1, lambda _text: None) as engine:
            done = ingest([str(sessions), str(deadly)], str(tmp_path / "lake"), 1, engine=engine)
    assert done.explained == RANKS
    assert [row["path"] for row in done.problems if "workers ended" in row["text"]] == [str(deadly)]
    assert content(tmp_path / "lake") == content(pool)


@pytest.mark.long
def test_a_scheduler_that_ends_is_reported_and_what_was_explained_is_kept(
    sessions: Path, tmp_path: Path
) -> None:
    with (
        scheduler() as (address, process),
        worker(address),
        dask(address, 1, lambda _text: None) as engine,
        pytest.raises(GputopError, match="was lost"),
    ):
        ingest([str(sessions)], str(tmp_path / "lake"), 1, engine=after_one(engine, process.kill))
    kept = len(content(tmp_path / "lake")["sessions"])
    assert 0 < kept < RANKS
    assert ingest([str(sessions)], str(tmp_path / "lake"), 1).explained == RANKS - kept


@pytest.mark.long
def test_a_scheduler_that_is_slow_to_say_goodbye_takes_no_answer_back(
    sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_dask, "CLOSE_S", 0)
    one = str(sessions / "1-0.gputop")
    with scheduler() as (address, _process), worker(address):
        with dask(address, 1, lambda _text: None) as engine:
            assert ingest([one], str(tmp_path / "lake"), 1, engine=engine).explained == 1
        with pytest.raises(GputopError, match="the reason"), dask(address, 1, lambda _text: None):
            raise GputopError("the reason")


@pytest.mark.long
def test_whoever_waits_for_a_worker_is_told_so_and_gets_it(
    sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_dask, "WAIT_S", 0.1)
    told: list[str] = []
    with ExitStack() as stack:
        address, _process = stack.enter_context(scheduler())

        def say(text: str) -> None:
            if not told:
                stack.enter_context(worker(address))
            told.append(text)

        with dask(address, 1, say) as engine:
            one = str(sessions / "1-0.gputop")
            assert ingest([one], str(tmp_path / "lake"), 1, engine=engine).explained == 1
    assert "no worker yet" in told[0]


def test_the_address_comes_from_the_variable_of_dask_and_one_that_nobody_has_is_reported(
    sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(on_dask, "CONNECT_S", 1)
    monkeypatch.setenv(ADDRESS, "tcp://127.0.0.1:1")
    words = ["fleet", "ingest", str(sessions / "1-0.gputop"), "--into", str(tmp_path / "lake")]
    assert cli.run(words) == 1
    assert "no Dask scheduler could be reached at tcp://127.0.0.1:1" in capfd.readouterr().err
    assert cli.run([*words, "--scheduler", "nonsense"]) == 1
    assert "An address looks like" in capfd.readouterr().err
    assert cli.run([*words, "--workers", "1"]) == 0  # what is typed is meant


@pytest.mark.parametrize("other", [["--dask"], ["--workers", "2"]])
def test_a_scheduler_and_processes_of_this_machine_exclude_each_other(
    other: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["fleet", "ingest", "x", "--into", "y", "--scheduler", "tcp://h:1", *other]) == 2
    assert other[0] in capfd.readouterr().err


@pytest.mark.long
def test_a_worker_with_another_gputop_is_refused(
    sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_dask, "installed", lambda: "another gputop")
    with dask(None, 1, lambda _text: None) as engine, pytest.raises(GputopError, match="install the same"):
        ingest([str(sessions)], str(tmp_path / "lake"), 1, engine=engine)


def test_without_dask_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = pytest.raises(GputopError, match=r"distributed.*worker processes")
    with said, dask(None, 1, lambda _text: None):
        pass


def test_nobody_else_on_the_machine_can_give_the_workers_code_to_run() -> None:
    distributed = needed("distributed")
    needed("cryptography")
    with dask(None, 1, lambda _text: None):
        address = distributed.default_client().scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises((OSError, TypeError)):
            distributed.Client(address, timeout=3, set_as_default=False)


@pytest.mark.long
@pytest.mark.parametrize("on", [["--workers", "2"], ["--dask", "--workers", "2"]])
def test_an_interrupt_keeps_what_is_explained_and_leaves_no_process(
    on: list[str], sessions: Path, pool: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(MANY):  # more than are done by then
        data = (sessions / "2-0.gputop").read_bytes()
        (folder / f"{number:04}.gputop").write_bytes(data + number.to_bytes(2, "big"))
    lake = tmp_path / "lake"
    command = [*GPUTOP, "fleet", "ingest", str(folder), "--into", str(lake), *on]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: _busy(running.pid), "the run to get there")
    os.killpg(running.pid, signal.SIGINT)  # as the terminal does: its workers get it, too
    said = running.communicate(timeout=HANGS_S)[1]
    assert running.returncode == 130, said
    assert "are left for the next run" in said
    assert "Traceback" not in said
    wait_until(lambda: not _there(running.pid), "the run to get there")
    kept = len(content(lake)["sessions"])
    print(f"{kept} were explained")
    assert 0 < kept < MANY


def _busy(pid: int) -> bool:
    """Whether two processes of a command have worked for long: some recordings are done then.

    A start takes each as long as it took the command itself, which does little while it waits for them.
    """
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    stats = [Path(f"/proc/{child}/stat") for thread in threads for child in thread.read_text().split()]
    own = _used_s(Path(f"/proc/{pid}/stat"))
    return len([stat for stat in stats if _used_s(stat) > 1 + 2 * own]) >= 2


def _used_s(stat: Path) -> float:
    """CPU seconds of a process."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _there(group: int) -> bool:
    """Whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_takes_one_processor_and_no_more_memory_than_it_may() -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, initializer=begin) as processes:
        assert (
            processes.apply(processors) == 1
        )  # else a long recording would have as many processes as there are
        assert processes.apply(resource.getrlimit, (resource.RLIMIT_DATA,))[0] < 1.5 * WORKER_MEMORY
