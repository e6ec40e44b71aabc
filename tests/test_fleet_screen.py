"""``gputop fleet screen``: jobs, ranks, sessions; what they cost adds up, and a session opens."""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import DataTable, Static

from gputop.errors import GputopError
from gputop.fleet import browse
from gputop.fleet.browse import Lake, Late, late_ranks
from gputop.fleet.ingest import ingest
from gputop.fleet.lake.lake import open_lake
from gputop.fleet.lake.questions import overview
from gputop.fleet.lake_app import LakeScreen, Ways
from gputop.fleet.ranks.stragglers import TABLES as OF_RANKS
from gputop.fleet.ranks.stragglers import stragglers
from tests.conftest import needed, skip_or_fail
from tests.fleet_jobs import CPU, Job, record
from tests.made_lake import Rows, made, sessions
from tests.screen_support import patient
from tests.waiting import HANGS_S

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
LATE = Job(7, late=1, ms=9, how=CPU)


def read(rows: Rows) -> Lake:
    """A lake of made-up rows."""
    needed("duckdb")
    database = made(rows)
    try:
        return Lake(database, 60)
    finally:
        database.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job with a late rank, a healthy one, and two recordings of no job."""
    needed("duckdb")
    needed("pyarrow")
    into = tmp_path_factory.mktemp("sessions")
    record(into, LATE)
    record(into, Job(8))
    for name in ("dataloader", "healthy"):
        shutil.copy(RECORDINGS / f"{name}.msgpack", into)
    return into


@pytest.fixture(scope="module")
def lake(folder: Path) -> Path:
    """What ingest makes of them."""
    ingest([str(folder)], str(folder.parent / f"{folder.name}-lake"), 1)
    return folder.parent / f"{folder.name}-lake"


@asynccontextmanager
async def shown(path: Path, opened: list[str], why: str = "") -> AsyncIterator[tuple[LakeScreen, Any]]:
    """The screen over a lake; late ranks are known."""
    database = open_lake(str(path), OF_RANKS)
    found = threading.Event()

    def late() -> Sequence[Late]:
        try:
            return late_ranks(stragglers(database, 60, rest=False, limit=100).answer)
        finally:
            found.set()

    def open_it(recording: str, _lent: object) -> str:
        opened.append(recording)
        return why

    app = LakeScreen(Lake(database, 60), path.name, Ways(open_it, late))
    async with patient(app, (140, 30)) as pilot:
        while app.late is None:
            await pilot.pause(0.02)
        yield app, pilot
    database.close()


def table(app: LakeScreen) -> list[dict[str, str]]:
    """What the table shows, by head."""
    widget = app.query_one(DataTable)
    heads = [column.label.plain for column in widget.columns.values()]
    return [
        dict(zip(heads, (cell.plain for cell in widget.get_row(row)), strict=True)) for row in widget.rows
    ]


def line(app: LakeScreen, name: str) -> str:
    """A line of text."""
    return str(app.query_one(f"#{name}", Static).content)


# -- what is told -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_jobs_cost_what_the_overview_says_and_each_level_adds_up_to_the_one_above(seed: int) -> None:
    needed("duckdb")
    rows = sessions(300, seed)
    lake = read(rows)
    jobs = lake.jobs()
    database = made(rows)
    hours = {job: hours for job, hours, *_ in database.query(overview("job"), 1000, 60).rows}
    database.close()
    assert {one.job: one.loss_ns / 3.6e12 for one in jobs if one.lost_ns} == pytest.approx(hours)
    assert [one.loss_ns for one in jobs] == sorted((one.loss_ns for one in jobs), reverse=True)
    for job in jobs:
        ranks = lake.ranks(job.job)
        assert sum(one.loss_ns for one in ranks) == pytest.approx(job.loss_ns)
        assert {one.rank for one in ranks} - {None} == job.ranks
        for rank in ranks:
            mine = lake.sessions(rank.job, rank.rank)
            assert sum(one.loss_ns for one in mine) == pytest.approx(rank.loss_ns)
            assert {id for one in mine for id in one.sessions} == set(rank.sessions)
    assert {id for one in jobs for id in one.sessions} == {row["session_id"] for row in rows["sessions"]}


def test_gpu_time_and_losses_of_a_session_count_once_however_many_ranks_it_holds() -> None:
    session = {"session_id": "a" * 64, "path": "/x", "verdict": "", "duration_ns": 5, "start_wall_ns": 0}
    more = {"gpu_span_ns": 1000, "lost_events": 3}
    finding = {"session_id": "a" * 64, "cause": "C12", "title": "input", "kind": "idle", "job": "j"}
    findings = [finding | {"pid": rank, "rank": rank, "loss_ns": 10.0} for rank in range(4)]
    (job,) = read({"sessions": [session | more], "findings": findings}).jobs()
    assert (job.gpu_ns, job.lost_events, job.loss_ns, len(job.ranks)) == (1000, 3, 40, 4)


def test_without_a_finding_the_largest_communicator_says_whose_a_process_is() -> None:
    session = {"session_id": "a" * 64, "path": "/x", "verdict": "", "duration_ns": 5, "start_wall_ns": 0}
    part = {"session_id": "a" * 64, "pid": 10, "job": "j", "rank": 1, "ranks": 2}
    whole = part | {"rank": 5, "ranks": 8}
    lake = read(
        {"sessions": [session | {"gpu_span_ns": 1, "lost_events": 0}], "communicators": [part, whole]}
    )
    assert [(one.job, one.ranks) for one in lake.jobs()] == [("j", {5})]


def test_a_session_of_sums_only_and_one_without_findings_belong_to_the_job_of_their_processes() -> None:
    session = {"session_id": "a" * 64, "path": "s3://bucket/a", "duration_ns": 5, "start_wall_ns": 0}
    lake = read({"sessions": [session | {"session_job": "j", "lost_events": 0, "unkept_ns": 5}]})
    (job,) = lake.jobs()
    ((path, one),) = ((one.path, one) for one in job.sessions.values())
    assert (job.job, job.gpu_ns, job.loss_ns, one.verdict) == ("j", 0, 0, "")
    assert f"{path} lies in object storage" in browse.why_not(one)


def test_a_late_rank_of_a_part_of_a_job_is_known_by_its_recording() -> None:
    def session(name: str) -> dict[str, Any]:
        told = {"verdict": "", "duration_ns": 5, "start_wall_ns": 0, "gpu_span_ns": 1, "lost_events": 0}
        return told | {"session_id": name * 64, "path": f"/{name}"}

    def finding(name: str, rank: int) -> dict[str, Any]:
        told = {"cause": "C12", "title": "input", "kind": "idle", "job": "j", "loss_ns": 1.0}
        return told | {"session_id": name * 64, "pid": rank, "rank": rank}

    lake = read(
        {
            "sessions": [session("a"), session("b")],
            "findings": [finding("a", 4), finding("b", 5), finding("b", 6)],
        }
    )
    late = [Late("j", "/a", 0, 9, "C12"), Late("j", "/b", 6, 8, "C12")]  # 0 is rank 4 of the job
    ranks = {one.rank: lake.late_in(one, late) for one in lake.ranks("j")}
    assert ranks == {4: [late[0]], 5: [], 6: [late[1]]}
    assert lake.late_in(lake.jobs()[0], late) == late


# -- the screen -------------------------------------------------------------------------------------------


async def test_enter_goes_from_a_job_to_a_rank_to_a_session_and_opens_it_and_escape_comes_back(
    lake: Path, folder: Path
) -> None:
    opened: list[str] = []
    async with shown(lake, opened) as (app, pilot):
        jobs = table(app)
        assert [row["job"] for row in jobs] == ["unknown", "job-7", "job-8"]
        assert jobs[1]["late rank"].startswith(f"{LATE.late}, by 9.")
        assert jobs[1]["ranks"] == str(LATE.ranks)
        assert (jobs[0]["late rank"], jobs[2]["late rank"]) == ("-", "-")
        await pilot.press("down", "enter")
        ranks = {row["rank"]: row for row in table(app)}
        assert set(ranks) == {str(rank) for rank in range(LATE.ranks)}
        assert {rank for rank, row in ranks.items() if row["late by"] != "-"} == {str(LATE.late)}
        assert "job-7" in line(app, "place")
        place = [row["rank"] for row in table(app)].index(str(LATE.late))
        await pilot.press(*["down"] * place, "enter")
        (session,) = table(app)
        late = str(folder / f"{LATE.id}-{LATE.late}.gputop")
        shown_of_it = session["file"].removesuffix("…")
        assert shown_of_it, "as much as there is room for"
        assert late.startswith(shown_of_it)
        assert f"rank {LATE.late}" in line(app, "about")
        await pilot.press("enter")
        assert opened == [late]
        await pilot.press("escape")
        assert app.query_one(DataTable).cursor_row == place
        await pilot.press("escape", "escape")
        assert [row["job"] for row in table(app)] == [row["job"] for row in jobs]
        assert app.query_one(DataTable).cursor_row == 1
        await pilot.press("q")
    assert app.return_value == 0


async def test_every_cell_of_every_level_is_whole(lake: Path) -> None:
    async with shown(lake, []) as (app, pilot):
        for keys in ((), ("enter",), ("enter",)):
            await pilot.press(*keys)
            widget = app.query_one(DataTable)
            for key, column in widget.columns.items():
                cells = [cell.plain for cell in widget.get_column(key)]
                assert column.width >= max(map(len, [*cells, column.label.plain]))


async def test_a_file_that_has_gone_or_is_another_is_reported_and_not_opened(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.gputop"
    shutil.copy(folder / "dataloader.msgpack", copy)
    ingest([str(copy)], str(tmp_path / "lake"), 1)
    opened: list[str] = []
    async with shown(tmp_path / "lake", opened, "it ended with status 1") as (app, pilot):
        await pilot.press("enter", "enter", "enter")
        shutil.copy(folder / "healthy.msgpack", copy)
        await pilot.press("enter")
        copy.unlink()
        await pilot.press("enter")
        said = [one.message for one in app._notifications]
    assert opened == [str(copy)]
    assert "ended with status 1" in said[0]
    assert "content has changed" in said[1]
    assert "is not at the path" in said[2]


async def test_a_lake_of_nothing_says_so_and_enter_does_nothing(tmp_path: Path) -> None:
    needed("duckdb")
    needed("pyarrow")
    ingest([], str(tmp_path / "lake"), 1)
    async with shown(tmp_path / "lake", []) as (app, pilot):
        assert "holds no session" in line(app, "about")
        await pilot.press("enter", "escape", "down")
        assert table(app) == []


async def test_names_in_a_lake_are_text_whatever_they_say() -> None:
    rows = sessions(1)
    name = "[bold red]job[/] \x1b[2J\u202e"
    rows["findings"] = [
        {"session_id": rows["sessions"][0]["session_id"], "pid": 1, "kind": "idle", "loss_ns": 1.0}
        | {"job": name, "cause": "C12", "title": "[@click=app.quit]x[/]"}
    ]
    app = LakeScreen(read(rows), "[red]lake", Ways(lambda path, lent: "", list))
    async with patient(app, (140, 30)) as pilot:
        (row,) = table(app)
        assert row["job"] == "[bold red]job[/] \\x1b[2J\\u202e"
        assert row["mostly by"] == "C12 [@click=app.quit]x[/]"
        await pilot.press("enter")
        assert "[red]lake › [bold red]job[/]" in line(app, "place")


async def test_what_keeps_late_ranks_from_being_known_is_reported() -> None:
    def late() -> Sequence[Late]:
        raise GputopError("the query took longer than 60 s: use fewer rows or joins")

    app = LakeScreen(read(sessions(3)), "lake", Ways(lambda path, lent: "", late))
    async with patient(app, (140, 30)) as pilot:
        while "searching for late ranks" in line(app, "about"):
            await pilot.pause(0.02)
        assert "late ranks are not known: the query took longer" in line(app, "about")
        assert {row["late rank"] for row in table(app)} == {"not known"}


def test_a_file_is_distinguished_from_another_of_its_name_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "one.gputop"
    path.write_bytes(b"one")
    from gputop.fleet.explain_task import content_hash

    one = browse.Recorded(content_hash(str(path)), str(path), None, 0, 0, None, "", 0, 0)
    assert browse.why_not(one) == ""
    path.write_bytes(b"two")
    assert "content has changed" in browse.why_not(one)


# -- a real terminal --------------------------------------------------------------------------------------


def test_in_a_terminal_a_session_opens_in_the_replay_screen_and_closing_it_leads_back(
    lake: Path, tmp_path: Path
) -> None:
    if shutil.which("tmux") is None:
        skip_or_fail("tmux not found: apt-get install tmux")
    from tests.bench.tmux import Terminal

    with Terminal(tmp_path) as terminal:
        terminal.keys(shlex.join([sys.executable, "-m", "gputop", "fleet", "screen", str(lake)]), "Enter")
        terminal.wait(lambda: "job-7" in terminal.screen(), HANGS_S)
        terminal.keys("Down", "Enter")
        terminal.wait(lambda: "› job-7: ranks" in terminal.screen(), HANGS_S)
        terminal.keys("Enter")
        terminal.wait(lambda: ".gputop" in terminal.screen(), HANGS_S)
        terminal.keys("Enter")
        terminal.wait(lambda: "REPLAY" in terminal.screen(), HANGS_S)
        terminal.keys("q")
        terminal.wait(lambda: "› job-7 › rank" in terminal.screen(), HANGS_S)
        terminal.keys("Escape")
        terminal.wait(lambda: "› job-7: ranks" in terminal.screen(), HANGS_S)
        terminal.keys("C-c")
        terminal.wait(terminal.at_prompt, HANGS_S)
        terminal.keys("echo status $?", "Enter")
        terminal.wait(lambda: "status 0" in terminal.screen().split("echo status")[-1], HANGS_S)


def test_without_a_terminal_one_sentence_says_so(lake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tests.typed import typed

    assert typed("fleet", "screen", str(lake)) != 0
    assert "terminal" in capfd.readouterr().err
