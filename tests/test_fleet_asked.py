"""``gputop mcp --lake``: an assistant asks many recordings together, and hears what ``gputop fleet`` says."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.commands import cli
from gputop.errors import GputopError
from gputop.fleet.ingest import ingest
from gputop.fleet.tool import lake_tool
from gputop.query.catalogue import Catalogue
from gputop.query.mcp_server import server_of
from gputop.query.reply import BEGIN, END
from tests.asking import RECORDINGS, TOOLS, asked, text_of
from tests.conftest import needed
from tests.fleet_jobs import CPU, Job, record
from tests.gputop_command import GPUTOP

NAMES = ("dataloader", "numpy-sync", "healthy")
LATE = Job(7, late=1, ms=9, how=CPU)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two planted causes, a healthy session, and a job of which one rank is late."""
    for module in ("mcp", "duckdb", "pyarrow"):
        needed(module)
    ranks = tmp_path_factory.mktemp("ranks")
    record(ranks, LATE)
    folder = tmp_path_factory.mktemp("lakes") / "lake"
    ingest([*(str(RECORDINGS / f"{name}.msgpack") for name in NAMES), str(ranks)], str(folder), 1)
    return folder


@pytest.fixture
def tell(lake: Path) -> Callable[..., Any]:
    """What the tool answers, read."""

    async def tell(**arguments: Any) -> Any:
        server = server_of(Catalogue([], none=True), "test", fleet=lake_tool(str(lake)))
        async with asked(server) as client:
            return json.loads(await text_of(client, "query_fleet", arguments))

    return tell


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    """What the command says, as rows with their heads."""
    assert cli.run(["fleet", *words, "--csv"]) == 0
    return list(csv.reader(capsys.readouterr().out.splitlines()))


def plain(rows: list[list[Any]]) -> list[list[str]]:
    """Cells without the marks of traced text."""
    return [
        ["" if cell is None else str(cell).removeprefix(BEGIN).removesuffix(END) for cell in row]
        for row in rows
    ]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["cause", "line", "user", "job"])
@pytest.mark.mainly("cause", "job")
async def test_the_overview_is_that_of_the_command(
    by: str, lake: Path, tell: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said = await tell(action="overview", by=by)
    head, *rows = printed(capsys, "overview", str(lake), "--by", by)
    assert said["columns"] == head
    names = len(head) - 4  # then hours, share, proved hours, sessions
    assert [row[:names] for row in plain(said["rows"])] == [row[:names] for row in rows]
    for mine, its in zip(said["rows"], rows, strict=True):
        assert mine[names] == pytest.approx(float(its[names]), abs=1e-6)
    assert not said["truncated"]


async def test_findings_and_late_ranks_are_those_of_the_command(
    lake: Path, tell: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said = await tell(action="findings")
    head, *rows = printed(capsys, "findings", str(lake))
    assert (said["columns"], said["total"]) == (head, len(rows))
    assert [row[0] for row in plain(said["rows"])] == [row[0] for row in rows]
    said = await tell(action="stragglers")
    assert said["communicators_with_a_late_rank"] == 1
    (late,) = (dict(zip(said["columns"], row, strict=True)) for row in said["rows"])
    assert late["late_rank"] == LATE.late
    assert late["late_ms"] == pytest.approx(LATE.ms, rel=0.05)


@pytest.mark.parametrize("marked", [False, True])
async def test_of_one_job_only_its_recordings_count(
    marked: bool, lake: Path, tell: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The name may be given as it was reported, marked as a text of others."""
    job = f"{BEGIN}job-7{END}" if marked else "job-7"
    head, *rows = printed(capsys, "overview", str(lake), "--job", "job-7")
    said = await tell(action="overview", job=job)
    assert (said["columns"], [row[0] for row in plain(said["rows"])]) == (head, [row[0] for row in rows])
    said = await tell(action="findings", job=job)
    assert {row[said["columns"].index("job")] for row in plain(said["rows"])} == {"job-7"}
    assert (await tell(action="stragglers", job=job))["communicators_with_a_late_rank"] == 1
    count = await tell(action="sql", job=job, query="SELECT count(*) AS n FROM sessions")
    assert count["rows"] == [[LATE.ranks]]


async def test_a_job_that_no_recording_is_of_is_reported_to_be_none(lake: Path) -> None:
    for action in ("overview", "findings", "stragglers"):
        with pytest.raises(GputopError, match="no recording is of that job: action overview by job"):
            lake_tool(str(lake))(None, action, "cause", "no-such-job", None, 10, None)


async def test_a_select_reads_the_tables_page_by_page_and_nothing_else(
    lake: Path, tell: Callable[..., Any]
) -> None:
    text = "SELECT session_id FROM sessions ORDER BY 1"
    first = await tell(action="sql", query=text, limit=4)
    rest = await tell(action="sql", query=text, limit=4, cursor="4")
    assert len({row[0] for row in first["rows"] + rest["rows"]}) == len(NAMES) + LATE.ranks
    columns = await tell(action="sql", query="SELECT column_name FROM (DESCRIBE findings)")
    assert [f"{BEGIN}cause{END}"] in columns["rows"]


@pytest.mark.parametrize(
    ("action", "query", "why"),
    [
        ("sql", "SELECT * FROM read_parquet('{lake}/sessions/*/*/*.parquet')", "disabled by configuration"),
        ("sql", "DROP TABLE sessions", "SELECT"),
        ("sql", None, "query goes with action sql"),
        ("overview", "SELECT 1", "query goes with action sql"),
    ],
)
def test_all_else_is_refused(action: str, query: str | None, why: str, lake: Path) -> None:
    query = query.format(lake=lake) if query else None
    with pytest.raises(GputopError, match=why):
        lake_tool(str(lake))(None, action, "cause", None, query, 10, None)


@pytest.mark.long
async def test_the_tool_is_there_with_a_lake_only_and_no_recording_is_needed_then(lake: Path) -> None:
    mcp = needed("mcp")
    words = [*GPUTOP[1:], "mcp", "--lake", str(lake)]
    async with asked(mcp.StdioServerParameters(command=GPUTOP[0], args=words)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {*TOOLS, "query_fleet"}
        assert json.loads(await text_of(client, "query_fleet", {"action": "overview"}))["rows"]
        assert json.loads(await text_of(client, "list_sessions", {}))["total"] == 0


def test_what_is_no_lake_is_refused_at_the_start(tmp_path: Path) -> None:
    needed("duckdb")
    with pytest.raises(GputopError, match="gputop fleet ingest"):
        lake_tool(str(tmp_path / "nowhere"))
