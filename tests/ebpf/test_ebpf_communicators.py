"""Who is which rank of which communicator is known from the calls that make one, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gputop.fleet.ingest import ingest
from gputop.fleet.lake.lake import open_lake
from gputop.fleet.ranks.stragglers import TABLES, stragglers
from probes.schema import Communicator, Kind
from tests.conftest import needed
from tests.ebpf.recording import Recorded, Workshop, compile_program

pytestmark = pytest.mark.ebpf
RANKS, STEPS, LATE = 2, 24, 1
REFUSED = 4  # ncclInvalidArgument


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    workshop = Workshop(tmp_path_factory.mktemp("ranks"))
    return workshop.python("ranks.py", str(RANKS), str(STEPS), "30", str(LATE), SIMGPU_DEVICES="2")


def hashed(words: bytes) -> int:
    """What is kept of a unique id, by the arithmetic that docs/session-format.md tells."""
    found = 0x9E3779B97F4A7C15
    for place in range(0, 128, 8):
        found = (found ^ int.from_bytes(words[place : place + 8], "little")) * 0xFF51AFD7ED558CCD % 2**64
        found ^= found >> 32
    return found


def test_each_rank_is_reported_with_its_number_its_communicator_and_a_hash_of_the_id(run: Recorded) -> None:
    told = {(line["pid"], line["communicator"]): line for line in run.said if "id" in line}
    assert len(told) == RANKS + 1
    records = run.records(Kind.COMMUNICATOR)
    joined = records[records["op"] == Communicator.JOINED]
    assert {(int(row["pid"]), int(row["aux"])) for row in joined} == told.keys()
    for row in joined:
        line = told[int(row["pid"]), int(row["aux"])]
        assert divmod(int(row["bytes"]), 2**32) == (line["ranks"], line["rank"])
        assert int(row["stream"]) == hashed(bytes.fromhex(line["id"]))
        assert row["ret"] == 0
        assert row["duration"] > 0
    assert run.lost == 0


def test_all_ranks_that_one_call_makes_are_reported(run: Recorded) -> None:
    (line,) = [line for line in run.said if "communicators" in line]
    records = run.records(Kind.COMMUNICATOR)
    rows = records[records["op"] == Communicator.ALL]
    assert rows["aux"].tolist() == line["communicators"]
    assert [divmod(number, 2**32) for number in rows["bytes"].tolist()] == [(2, 0), (2, 1)]
    assert len(set(rows["stream"].tolist())) == 1


def test_a_rank_that_leaves_is_reported(run: Recorded) -> None:
    records = run.records(Kind.COMMUNICATOR)
    left = records[records["op"] == Communicator.LEFT]
    expected = {(line["pid"], line["communicator"]) for line in run.said if "id" in line}
    assert {(int(row["pid"]), int(row["aux"])) for row in left} == expected


def test_the_id_itself_is_nowhere_in_the_file(run: Recorded) -> None:
    data = run.path.read_bytes()
    ids = [bytes.fromhex(line["id"]) for line in run.said if "id" in line]
    assert not any(words[:16] in data for words in ids)
    for name in np.dtype(run.records(Kind.COMMUNICATOR).dtype).names or ():
        column = run.records(Kind.COMMUNICATOR)[name].tobytes()
        assert not any(words[:8] in column for words in ids)


def test_collectives_name_the_communicator_that_was_reported(run: Recorded) -> None:
    names, calls = run.calls()
    for line in (line for line in run.said if line.get("ranks") == RANKS):
        mine = calls[(calls["op"] == names.index("ncclAllReduce")) & (calls["pid"] == line["pid"])]
        assert set(mine["aux"].tolist()) == {line["communicator"]}
        assert len(mine) == 2 * STEPS


def test_the_rank_that_sleeps_is_late_by_as_long_as_it_sleeps_and_for_that_reason(
    run: Recorded, tmp_path: Path
) -> None:
    """The program's own clock is the truth."""
    needed("duckdb")
    needed("pyarrow")
    slept = {line["rank"]: line["slept_ms"] for line in run.said if "slept_ms" in line}
    assert ingest([str(run.path)], str(tmp_path / "lake"), 1).explained == 1
    database = open_lake(str(tmp_path / "lake"), TABLES)
    found = stragglers(database, 60, rest=False, limit=10)
    database.close()
    (row,) = (dict(zip(found.answer.columns, told, strict=True)) for told in found.answer.rows)
    assert (row["late_rank"], row["seen"], row["ranks"]) == (LATE, RANKS, RANKS)
    assert row["cause"] == "C32"
    assert row["late_ms"] == pytest.approx(slept[LATE] - slept[1 - LATE], rel=0.1)
    assert row["clock_error_ms"] == 0, "they have one clock"


def test_parts_of_a_communicator_several_ids_and_what_is_still_under_way_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    library = compile_program("fake_nccl.c", folder, "-shared", "-fPIC", output="libnccl.so.2")
    run = Workshop(tmp_path, "multi").python("odd_ranks.py", str(library), LD_LIBRARY_PATH=str(folder))
    asked = [
        (
            line["what"],
            line["first"] % 2**32,
            line["second"],
            line["id"] if "id" in line else hashed(bytes.fromhex(line["words"])),
            line["made"],
            line["code"],
        )
        for line in run.said
        if line["code"] != REFUSED
    ]
    told = [
        (int(row["op"]), *divmod(int(row["bytes"]), 2**32), int(row["stream"]), int(row["aux"]), row["ret"])
        for row in run.records(Kind.COMMUNICATOR)
    ]
    assert told == asked
    assert len(asked) == len(run.said) - 1, "what was refused made none"
