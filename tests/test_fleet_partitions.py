"""A lake by date and job: a question about one reads its files alone, and other programs read them, too."""

from __future__ import annotations

import csv
import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gputop.commands import cli
from gputop.errors import GputopError
from gputop.fleet.ingest import ingest
from gputop.fleet.lake.lake import add_piece, adding_to, open_lake
from gputop.fleet.lake.lake_tables import COLUMNS
from gputop.fleet.lake.pieces import NONE, LakeSelection
from gputop.fleet.ranks.stragglers import TABLES, stragglers
from tests.conftest import needed
from tests.fleet_jobs import CPU, QUEUE, Job, record
from tests.fleet_lakes import as_before, asked, content

DAY_NS = 86400 * 10**9
JOBS = (Job(1, late=1, ms=9, how=CPU), Job(2), Job(3, late=0, ms=7, how=QUEUE))
LATE = {"job-1": 1, "job-3": 0}
ROUGH = "../a b/ü%2F=;'"  # a job as somebody might call it


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ranks of three jobs, which ran on days one behind the other."""
    for module in ("duckdb", "pyarrow"):
        needed(module)
    folder = tmp_path_factory.mktemp("ranks")
    for number, job in enumerate(JOBS):
        clock = {"monotonic_ns": 0, "realtime_ns": (20000 + number) * DAY_NS, "utc_offset_s": 0}
        record(folder, job, number, clock=clock)
    return folder


@pytest.fixture(scope="module")
def whole(ranks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of all of them."""
    lake = tmp_path_factory.mktemp("lakes") / "lake"
    assert ingest([str(ranks)], str(lake), 1).explained == sum(job.ranks for job in JOBS)
    return lake


@pytest.fixture
def lake(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may harm."""
    return Path(shutil.copytree(whole, tmp_path / "lake"))


def of_part(lake: Path, part: LakeSelection) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables of a part."""
    database = open_lake(str(lake), tuple(COLUMNS), part)
    try:
        return {
            table: list(database.query(f"SELECT * FROM {table} ORDER BY ALL", 1 << 30, 60).rows)
            for table in COLUMNS
        }
    finally:
        database.close()


def chosen(lake: Path, sessions: str) -> dict[str, list[tuple[Any, ...]]]:
    """The same by conditions over the whole lake."""
    ids = f"SELECT session_id FROM sessions WHERE {sessions}"
    members = f"SELECT member FROM communicators WHERE session_id IN ({ids})"
    return {
        table: asked(
            lake,
            f"SELECT * FROM {table} WHERE "
            + (f"session_id IN ({ids})" if "session_id" in COLUMNS[table] else f"member IN ({members})")
            + " ORDER BY ALL",
        )
        for table in COLUMNS
    }


@pytest.mark.long
@pytest.mark.parametrize("job", [job.id for job in JOBS])
def test_a_question_about_a_job_reads_its_files_alone(job: int, lake: Path) -> None:
    wanted = chosen(lake, f"session_job = 'job-{job}'")
    assert wanted["findings"] or f"job-{job}" not in LATE
    for file in lake.rglob("*.parquet"):
        if f"job=job-{job}" not in file.parts:
            file.write_bytes(b"whoever reads this fails")
    assert of_part(lake, LakeSelection(f"job-{job}")) == wanted
    with pytest.raises(GputopError):
        of_part(lake, LakeSelection())


def test_a_question_about_days_reads_their_files_alone(lake: Path) -> None:
    days = sorted({file.parts[-3] for file in lake.rglob("sessions/*/*/*.parquet")})
    assert days == ["date=2024-10-04", "date=2024-10-05", "date=2024-10-06"]
    wanted = chosen(lake, "start_wall_ns // 86400000000000 IN (20001, 20002)")
    for file in lake.glob("*/date=2024-10-04/*/*.parquet"):
        file.write_bytes(b"whoever reads this fails")
    words = ["--date", "2024-10-05..2024-10-06", "--csv"]
    assert cli.run(["fleet", "sql", str(lake), "SELECT count(*) FROM sessions", *words]) == 0
    assert of_part(lake, LakeSelection(since=date(2024, 10, 5), until=date(2024, 10, 6))) == wanted


def test_the_hours_of_the_jobs_are_those_of_all(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def hours(*words: str) -> float:
        assert cli.run(["fleet", "overview", str(lake), "--by", "job", "--csv", *words]) == 0
        rows = csv.DictReader(capsys.readouterr().out.splitlines())
        return sum(float(row["gpu_hours"]) for row in rows)

    parts = [hours("--job", f"job-{job.id}") for job in JOBS]
    assert sum(parts) == pytest.approx(hours())
    assert hours("--job", "nobody's") == 0


@pytest.mark.parametrize(("job", "rank"), LATE.items())
def test_the_late_rank_of_a_job_is_found_in_its_part(job: str, rank: int, lake: Path) -> None:
    database = open_lake(str(lake), TABLES, LakeSelection(job))
    try:
        found = stragglers(database, 60, rest=True, limit=10)
    finally:
        database.close()
    (row,) = (dict(zip(found.answer.columns, row, strict=True)) for row in found.answer.rows)
    assert (row["job"], row["late_rank"]) == (job, rank)


def test_other_programs_read_the_same_rows_by_hive_partitions(lake: Path) -> None:
    duckdb, dataset = needed("duckdb"), needed("pyarrow.dataset")
    text = f"SELECT job, count(*) FROM read_parquet('{lake}/findings/*/*/*.parquet', hive_partitioning=true)"
    theirs = duckdb.sql(f"{text} GROUP BY ALL ORDER BY ALL").fetchall()
    assert theirs == asked(lake, "SELECT job, count(*) FROM findings GROUP BY ALL ORDER BY ALL")
    found = dataset.dataset(lake / "collectives", partitioning="hive")
    one = found.to_table(filter=dataset.field("job") == "job-1")
    mine = asked(
        lake, "SELECT count(*) FROM collectives JOIN communicators USING (member) WHERE job = 'job-1'"
    )
    assert [(one.num_rows,)] == mine


def session(number: int, **facts: Any) -> dict[str, Any]:
    """A row of a session."""
    return dict.fromkeys(COLUMNS["sessions"]) | {"session_id": f"{number:064x}", **facts}


def finding(number: int, job: str | None) -> dict[str, Any]:
    """A row of a finding of it."""
    return dict.fromkeys(COLUMNS["findings"]) | {"session_id": f"{number:064x}", "job": job, "kind": "idle"}


def test_a_job_may_be_called_as_it_likes_and_stays_inside(tmp_path: Path) -> None:
    needed("pyarrow")
    duckdb = needed("duckdb")
    lake = tmp_path / "lake"
    with adding_to(str(lake)):
        add_piece(str(lake), {"sessions": [session(1, session_job=ROUGH)], "findings": [finding(1, ROUGH)]})
    (name,) = {file.parent.name for file in lake.rglob("*.parquet")}
    assert {len(file.relative_to(lake).parts) for file in lake.rglob("*.parquet")} == {4}
    assert len(of_part(lake, LakeSelection(ROUGH))["findings"]) == 1
    text = f"SELECT job FROM read_parquet('{lake}/findings/*/{name}/*.parquet', hive_partitioning=true)"
    assert duckdb.sql(text).fetchall() == [(ROUGH,)]


def test_a_session_of_two_jobs_is_in_the_part_of_each(tmp_path: Path) -> None:
    needed("pyarrow")
    lake = tmp_path / "lake"
    rows = {
        "sessions": [session(1), session(2, session_job="b")],
        "findings": [finding(1, "a"), finding(1, "b")],
    }
    with adding_to(str(lake)):
        add_piece(str(lake), rows)
    assert [len(of_part(lake, LakeSelection(job))["sessions"]) for job in ("a", "b", "c")] == [1, 2, 0]
    assert [len(of_part(lake, LakeSelection(job))["findings"]) for job in ("a", "b", "c")] == [1, 1, 0]


def test_a_class_by_its_former_name_is_read_by_its_present_one(tmp_path: Path) -> None:
    needed("pyarrow")
    lake = str(tmp_path / "lake")
    rows = [session(1, **{"class": "unasked"}), session(2, **{"class": "input"}), session(3)]
    with adding_to(lake):
        add_piece(lake, {"sessions": rows})
    found = asked(lake, "SELECT class FROM sessions ORDER BY session_id")
    assert found == [("no-requests",), ("input",), (None,)]


@pytest.mark.long
def test_an_older_lake_stays_readable_and_may_grow(whole: Path, ranks: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    as_before(whole, old)
    now, before = content(whole), content(old)
    assert {table: now[table] for table in COLUMNS if table != "sessions"} == {
        table: before[table] for table in COLUMNS if table != "sessions"
    }
    assert [row[:-3] for row in before["sessions"]] == [row[:-3] for row in now["sessions"]]
    again = ingest([str(ranks)], str(old), 1)
    assert (again.explained, again.known) == (0, len(now["sessions"]))
    (extra,) = record(tmp_path, Job(9, ranks=1))
    assert ingest([str(extra)], str(old), 1).explained == 1
    assert len(content(old)["sessions"]) == len(now["sessions"]) + 1
    assert [len(of_part(old, LakeSelection(job))["communicators"]) for job in ("job-1", "job-9")] == [3, 1]


def test_a_list_of_a_newer_gputop_and_one_that_leads_elsewhere_are_refused(lake: Path) -> None:
    (place,) = (lake / "pieces").iterdir()
    told = json.loads(place.read_bytes())
    place.write_text(json.dumps(told | {"version": 99}))
    with pytest.raises(GputopError, match="newer gputop"):
        open_lake(str(lake))
    place.write_text(json.dumps(told | {"keys": {"sessions": [[NONE, "../../../../etc"]]}}))
    with pytest.raises(GputopError, match="cannot be read"):
        open_lake(str(lake))


def test_a_day_that_is_none_is_refused(lake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["fleet", "overview", str(lake), "--date", "yesterday"]) == 2
    assert "is not a day" in capfd.readouterr().err
