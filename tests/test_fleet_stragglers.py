"""``gputop fleet stragglers``: ranks of several hosts are joined, the late one is named with cause and ms."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputop.commands import cli
from gputop.fleet import explain_task
from gputop.fleet.ingest import ingest
from gputop.fleet.lake.lake import add_piece, adding_to, open_lake
from gputop.fleet.lake.lake_tables import Row
from gputop.fleet.ranks.collective_rows import MOST, thinned
from gputop.fleet.ranks.communicator_ranks import Memberships
from gputop.fleet.ranks.stragglers import NO_CAUSE, TABLES, Stragglers, stragglers
from probes.schema import Communicator, Kind
from probes.source import PROBLEM, Sample
from tests import items
from tests.conftest import needed
from tests.fleet_jobs import ASKS, BEFORE, CPU, GPU, HANDLE, NEVER, QUEUE, Job, record
from tests.fleet_lakes import as_before
from tests.items import MS, START
from tests.split_recording import read, write
from tests.synthetic_ranks import job as synthetic_job

JOBS = (
    Job(1, late=1, ms=9, how=CPU),
    Job(2, late=0, ms=14, how=QUEUE),
    Job(3, late=2, ms=7, how=GPU),
    Job(4),
    Job(5, late=1, ms=20, steps=12),  # too few to say anything
    Job(8, late=1, ms=9, waits=NEVER),  # their hosts run ahead
    Job(11, late=1, ms=11, waits=ASKS),
    Job(9, late=2, ms=9, waits=BEFORE, one_host=True),
    Job(10, late=2, ms=9, waits=BEFORE),  # when a host sees a collective end depends on its own next step
    Job(6, late=0, ms=6),  # one of its recordings is torn
)
NAMED = [job for job in JOBS if job.late >= 0 and job.id not in (5, 8, 10)]
TORN_AT = 0.75


@dataclass(frozen=True)
class Asked:
    """A lake, and what it says with and without communicators that have no late rank."""

    folder: Path
    late: Stragglers
    every: Stragglers

    def row(self, job: Job) -> dict[str, Any]:
        """What is reported of a job."""
        rows = [dict(zip(self.every.answer.columns, row, strict=True)) for row in self.every.answer.rows]
        (found,) = [row for row in rows if row["communicator"] == f"{job.id:016x}"]
        return found


def ask(lake: Path, *, rest: bool = False, limit: int = 1000) -> Stragglers:
    """What a lake says."""
    database = open_lake(str(lake), TABLES)
    try:
        return stragglers(database, 60, rest=rest, limit=limit)
    finally:
        database.close()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Recordings of all jobs, one of them twice, one torn, and one whose communicator nobody saw made."""
    needed("duckdb")
    needed("pyarrow")
    folder = tmp_path_factory.mktemp("jobs")
    for job in JOBS:
        paths = record(folder, job, seed=job.id)
    whole = paths[1].read_bytes()
    paths[1].write_bytes(whole[: int(TORN_AT * len(whole))])
    shutil.copy(folder / "1-0.gputop", folder / "twice.gputop")
    record(folder, Job(7, late=1, ms=9, ranks=2, made=False), seed=7)
    lake = tmp_path_factory.mktemp("lakes") / "lake"
    done = ingest([str(folder)], str(lake), 1)
    assert done.known == 1
    assert [row["what"] for row in done.problems] == ["torn"]
    return Asked(lake, ask(lake), ask(lake, rest=True))


@pytest.mark.parametrize("job", NAMED)
def test_the_late_rank_is_named_with_its_host_its_cause_and_its_milliseconds(job: Job, asked: Asked) -> None:
    row = asked.row(job)
    assert (row["late_rank"], row["host"]) == (job.late, f"node{job.late}")
    assert row["cause"] == job.cause
    assert (row["title"] == NO_CAUSE) is (job.cause is None)
    assert row["late_ms"] == pytest.approx(job.ms, rel=0.05)
    assert (row["seen"], row["ranks"], row["job"]) == (job.ranks, job.ranks, f"job-{job.id}")
    assert row["last"] > 0.9
    assert (row["clock_error_ms"] > 0) is not job.one_host
    assert row["clock_error_ms"] < (0.5 if job.waits == ASKS else 0.2)
    assert row["why"] is None


def test_no_other_job_has_a_late_rank_and_what_is_not_known_is_reported(asked: Asked) -> None:
    healthy, few, ahead, loose = JOBS[3], JOBS[4], JOBS[5], JOBS[8]
    named = {dict(zip(asked.late.answer.columns, row, strict=True))["job"] for row in asked.late.answer.rows}
    assert named == {f"job-{job.id}" for job in NAMED}
    assert asked.row(healthy)["why"] == "no rank is usually late"
    assert "20" in asked.row(few)["why"]
    assert "hosts waited for fewer" in asked.row(ahead)["why"]
    assert "error of the clocks" in asked.row(loose)["why"]
    assert asked.row(loose)["clock_error_ms"] > loose.ms
    found = asked.every
    assert (found.late, found.healthy, found.unknown, found.unnumbered) == (6, 1, 3, 2)


def test_a_rank_of_which_a_part_is_recorded_counts_as_far_as_it_was_seen(asked: Asked) -> None:
    row = asked.row(JOBS[-1])
    assert 20 <= row["collectives"] < JOBS[-1].steps


def test_the_dearest_is_reported_first_and_a_limit_is_reported(asked: Asked) -> None:
    place = asked.late.answer.columns.index("gpu_hours")
    hours = [row[place] for row in asked.late.answer.rows]
    assert hours == sorted(hours, reverse=True)
    cut = ask(asked.folder, limit=2).answer
    assert (len(cut.rows), cut.more) == (2, True)


def test_the_command_prints_the_same_as_json_as_csv_and_as_a_table(
    asked: Asked, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["fleet", "stragglers", str(asked.folder), "--json"]) == 0
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert [tuple(row) for row in told["rows"]] == list(asked.late.answer.rows)
    assert "10 communicators: 6 with a late rank, 1 without, 3 unknown" in err
    assert "2 processes use communicators whose creation was not recorded" in err
    assert cli.run(["fleet", "stragglers", str(asked.folder), "--all", "--csv"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split(",") == list(asked.every.answer.columns)
    assert len(lines) == 1 + len(JOBS)
    assert cli.run(["fleet", "stragglers", str(asked.folder)]) == 0
    assert NO_CAUSE in capfd.readouterr().out


def test_a_lake_of_an_older_gputop_has_no_communicators(asked: Asked, tmp_path: Path) -> None:
    older = tmp_path / "older"
    as_before(asked.folder, older, ("sessions", "findings", "problems"))
    found = ask(older, rest=True)
    assert (found.answer.rows, found.late, found.unknown, found.unnumbered) == ((), 0, 0, 0)


# -- one recording ------------------------------------------------------------------------------------------


def looked_at(path: Path) -> dict[str, tuple[Row, ...]]:
    """Rows of one recording."""
    task = explain_task.Task(str(path), explain_task.content_hash(str(path)))
    return dict(explain_task.explain_task(task).rows)


def test_collectives_are_numbered_from_the_making_of_the_communicator_on(tmp_path: Path) -> None:
    found = looked_at(record(tmp_path, Job(9, ranks=1))[0])
    assert [row["seq"] for row in found["collectives"]] == list(range(40))
    (member,) = found["communicators"]
    assert (member["communicator"], member["rank"], member["ranks"]) == (f"{9:016x}", 0, 1)
    assert (member["collectives"], member["waits"], member["kept"], member["why"]) == (40, 40, 40, None)
    assert all(row["begin_ns"] < row["end_ns"] for row in found["collectives"])


def test_a_long_recording_has_a_bounded_number_of_rows_and_says_how_many_there_were(tmp_path: Path) -> None:
    found = looked_at(record(tmp_path, Job(9, ranks=1, steps=600))[0])
    (member,) = found["communicators"]
    assert (member["waits"], member["kept"]) == (600, len(found["collectives"]))
    assert 20 < len(found["collectives"]) <= MOST


def test_after_a_lost_record_no_collective_has_a_number(tmp_path: Path) -> None:
    header, told = read(record(tmp_path, Job(9, ranks=1))[0])
    every = items.joined([item for item in told if not isinstance(item, Sample)])
    lost = np.flatnonzero(every["op"] == items.call(0, 0, "ncclAllReduce")["op"])[25]
    every = np.delete(every, lost)
    facts = [item for item in told if isinstance(item, Sample) and item.kind != items.MARK]
    path = write(tmp_path / "lossy", header, [*facts, every, items.mark(1, int(every["t_end"].max()))])
    found = looked_at(path)
    assert [row["seq"] for row in found["collectives"]] == list(range(25))
    (member,) = found["communicators"]
    assert "records are missing" in member["why"]


def test_a_recording_that_is_explained_in_parts_says_that_its_collectives_have_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_task, "MEMORY", 1)
    found = looked_at(record(tmp_path, Job(9, ranks=1))[0])
    (member,) = found["communicators"]
    assert "in parts" in member["why"]
    assert "collectives" not in found


@pytest.mark.parametrize("step", [1, 2, 7])
def test_who_keeps_fewer_collectives_keeps_some_of_those_that_others_keep(step: int) -> None:
    few, many = np.arange(0, 5000, step), np.arange(20_000)
    kept, others = few[thinned(few)], many[thinned(many)]
    assert len(kept) <= MOST
    assert len(others) <= MOST
    both = others[(others < 5000) & (others % step == 0)]
    assert set(both.tolist()) <= set(kept.tolist())
    assert len(kept) > MOST / 4
    assert thinned(np.arange(MOST)).all()


# -- communicators ------------------------------------------------------------------------------------------


def told_by(*records: Any) -> list[tuple[int, int, str, int, int | None]]:
    """(process, handle, id, rank, ranks) of what these make."""
    gathered = Memberships()
    gathered.consume(items.joined(list(records)))
    return [(one.pid, one.handle, one.id, one.rank, one.ranks) for one in gathered.all()]


def made(what: Communicator, at: int, *, pid: int = 10, id: int = 5, first: int = 4, second: int = 0) -> Any:
    """A record of a communicator."""
    return items.event(
        Kind.COMMUNICATOR,
        START + at,
        pid=pid,
        op=what,
        stream=id,
        aux=HANDLE + at,
        bytes=first << 32 | second,
    )


def test_parts_of_a_communicator_have_one_name_at_all_ranks_and_another_for_each_colour_and_split() -> None:
    split, parts = Communicator.SPLIT, {}
    for rank, pid in enumerate((10, 20, 30)):
        whole = made(Communicator.JOINED, 1, pid=pid, second=rank)
        colours = (0, 1)[rank % 2], 2**32 - 1, 0
        told = told_by(
            whole,
            *(
                made(split, place, pid=pid, id=HANDLE + 1, first=colour)
                for place, colour in enumerate(colours, 2)
            ),
        )
        assert told[0] == (pid, HANDLE + 1, f"{5:016x}", rank, 4)
        assert [(row[1], row[3], row[4]) for row in told[1:]] == [
            (HANDLE + 2, rank, None),
            (HANDLE + 4, rank, None),
        ], "a rank without a colour is in no part"
        parts[rank] = [row[2] for row in told[1:]]
    assert parts[0] == parts[2]
    assert parts[0][0] != parts[1][0], "another colour"
    assert parts[0][1] == parts[1][1], "the same colour, in the third split"
    assert len({*parts[0], *parts[1], f"{5:016x}"}) == 4


def test_parts_of_what_nobody_saw_made_are_not_known() -> None:
    assert told_by(made(Communicator.SPLIT, 3, id=77, first=1)) == []


def test_a_handle_that_is_used_again_is_another_communicator() -> None:
    handle = {"aux": HANDLE, "bytes": 2 << 32}
    first = items.event(Kind.COMMUNICATOR, START + 10, op=Communicator.JOINED, stream=1, **handle)
    left = items.event(Kind.COMMUNICATOR, START + 20, op=Communicator.LEFT, aux=HANDLE)
    again = items.event(Kind.COMMUNICATOR, START + 30, duration=5, op=Communicator.JOINED, stream=2, **handle)
    gathered = Memberships()
    gathered.consume(items.joined([first, left, again]))
    spans = {one.id: (one.since_ns, one.until_ns) for one in gathered.all()}
    assert spans[f"{1:016x}"] == (START + 10, START + 20)
    assert spans[f"{2:016x}"][0] == START + 25


def test_from_where_on_less_is_observed_nothing_is_numbered(tmp_path: Path) -> None:
    header, told = read(record(tmp_path, Job(9, ranks=1))[0])
    calls = np.concatenate([item["t_end"] for item in told if not isinstance(item, Sample)])
    half = int(np.sort(calls)[len(calls) // 2])
    less = Sample(PROBLEM, half, {"text": "less is observed", "about": "budget"})
    found = looked_at(write(tmp_path / "less", header, [*told, less]))
    assert 15 < len(found["collectives"]) < 25


# -- a fleet ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_of_125_jobs_of_8_ranks_in_a_lake_the_40_late_ones_are_named_with_their_causes(
    tmp_path: Path,
) -> None:
    needed("duckdb")
    needed("pyarrow")
    chance = np.random.default_rng(4)
    truth: dict[str, tuple[int, float, str]] = {}
    rows: dict[str, list[Row]] = {table: [] for table in (*TABLES, "problems")}
    for number in range(125):
        late, ms = (int(chance.integers(8)), float(chance.uniform(3, 50))) if number < 40 else (-1, 0.0)
        cause = ("C03", "C12", "C13")[number % 3]
        communicator = f"{number:016x}"
        add_job(rows, communicator, synthetic_job(number, late=late, late_ms=ms, meetings=40), late, cause)
        if late >= 0:
            truth[communicator] = late, ms, cause
    with adding_to(str(tmp_path / "lake")):
        add_piece(str(tmp_path / "lake"), rows)
    found = ask(tmp_path / "lake")
    assert (found.late, found.healthy, found.unknown) == (40, 85, 0)
    for row in (dict(zip(found.answer.columns, row, strict=True)) for row in found.answer.rows):
        late, ms, cause = truth[row["communicator"]]
        assert (row["late_rank"], row["cause"]) == (late, cause)
        assert row["late_ms"] == pytest.approx(ms, rel=0.05)


def add_job(rows: dict[str, list[Row]], communicator: str, job: Any, late: int, cause: str) -> None:
    """Rows as ``fleet ingest`` makes them of eight recordings; ``cause`` made one of them late."""
    meetings = job.meetings
    for rank in range(meetings.begin.shape[1]):
        session = f"{communicator}{rank:048x}"
        member = {"member": len(rows["communicators"])}
        head = {"session_id": session, "communicator": communicator, "rank": rank, **member}
        empty = dict.fromkeys(explain_task.COLUMNS["sessions"])
        rows["sessions"].append(empty | {"session_id": session, "host": f"node{rank}", "path": session})
        begin, end = meetings.begin[:, rank].tolist(), meetings.end[:, rank].tolist()
        facts = {"collectives": len(begin), "waits": len(begin), "kept": len(begin), "ranks": 8, "pid": 10}
        span = {"first_ns": begin[0], "last_ns": begin[-1], "clock": session}
        rows["communicators"].append(
            dict.fromkeys(explain_task.COLUMNS["communicators"]) | head | facts | span
        )
        for seq, idle in enumerate(meetings.idle[:, rank].tolist()):
            times = {
                "seq": seq,
                "begin_ns": begin[seq],
                "end_ns": end[seq],
                "slack_ns": 9000,
                "idle_ns": idle,
                "drained": 0,
            }
            rows["collectives"].append(member | times)
            own = cause if rank == late else "C01"
            rows["before_collectives"].append(member | {"seq": seq, "cause": own, "ns": idle - 4 * MS})
            rows["before_collectives"].append(member | {"seq": seq, "cause": "C06", "ns": 4 * MS})
