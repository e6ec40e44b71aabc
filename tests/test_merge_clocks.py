"""Clocks of several recordings as one: by the collectives that they shared, with the error that is said."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputop.api.session import open_session
from gputop.merging.clocks import by_collectives
from gputop.merging.rank_collectives import Rank, ranks_of
from probes import api
from probes.schema import Kind
from probes.source import Sample
from tests import items
from tests.inside import run
from tests.items import MS, SECOND, START
from tests.split_recording import read, write
from tests.two_ranks import JOB_STEPS, job


@pytest.mark.parametrize("seed", range(8))
def test_clocks_of_two_machines_are_aligned_by_their_collectives(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    ahead = rng.randrange(-900, 900) * SECOND + rng.randrange(SECOND)
    one = write(tmp_path / "one", *job(0, rng, pid=100, boot="a"))
    other = write(tmp_path / "other", *job(ahead, rng, pid=100, boot="b"))
    said = run("merge", str(one), str(other), "-o", str(tmp_path / "out")).stderr
    assert f"{JOB_STEPS} collectives" in said
    part = json.loads(run("inspect", "--json", str(tmp_path / "out")).stdout)["parts"][1]
    off = abs(part["later_ns"] + ahead)
    assert off <= part["error_ns"] < 2 * MS
    assert off < 400_000


SYNC = "cudaStreamSynchronize"


def times(path: Path, function: str, which: str) -> Any:
    """When the calls of each process began or ended: a row a process."""
    records = np.concatenate([item for item in read(path)[1] if not isinstance(item, Sample)])
    mine = records[(records["kind"] == Kind.CALL) & (records["op"] == api.OP_OF[function])]
    at = mine["t_end"].astype(np.int64) - (mine["duration"].astype(np.int64) if which == "begin" else 0)
    return np.array([at[mine["pid"] == pid] for pid in np.unique(mine["pid"])])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ppm", [-180.0, 25.0, 500.0])
@pytest.mark.slow
@pytest.mark.mainly("500.0-1", "-180.0-0", "25.0-2")
def test_clocks_that_drift_are_aligned_at_each_moment(ppm: float, seed: int, tmp_path: Path) -> None:
    """Over 80 s they drift by 2 to 40 ms, and every collective has the same end for both all the same."""
    rng = random.Random(seed)
    ahead = rng.randrange(-900, 900) * SECOND
    pause = 2 * SECOND
    one = write(tmp_path / "one", *job(0, rng, pid=100, boot="a", pause=pause))
    other = write(tmp_path / "other", *job(ahead, rng, pid=100, boot="b", pause=pause, fast=ppm / 1e6))
    said = run("merge", str(one), str(other), "-o", str(tmp_path / "out")).stderr
    assert "ppm" in said
    part = json.loads(run("inspect", "--json", str(tmp_path / "out")).stdout)["parts"][1]
    assert part["drift_ppm"] == pytest.approx(-ppm, abs=6)
    assert f"drift {part['drift_ppm']:+.2f} ppm" in run("inspect", str(tmp_path / "out")).stdout
    begun, done = times(tmp_path / "out", "ncclAllReduce", "begin"), times(tmp_path / "out", SYNC, "end")
    assert begun.shape == done.shape == (2, JOB_STEPS)
    # each ends 0.3 ms after both have begun, and is reported 0.02 to 0.4 ms late
    assert (begun.max(axis=0) <= done.min(axis=0)).all()
    assert np.abs(done[0] - done[1]).max() <= 400_000 + part["error_ns"]
    assert part["error_ns"] < MS


def test_clocks_of_one_speed_are_reported_to_have_no_drift(tmp_path: Path) -> None:
    rng = random.Random(5)
    files = [
        write(tmp_path / boot, *job(0, rng, pid=100, boot=boot, pause=2 * SECOND)) for boot in ("a", "b")
    ]
    assert "drift" not in run("merge", *map(str, files), "-o", str(tmp_path / "out")).stderr
    part = json.loads(run("inspect", "--json", str(tmp_path / "out")).stdout)["parts"][1]
    assert part["drift_ppm"] == 0


@pytest.mark.long
@pytest.mark.slow
def test_collectives_of_a_long_recording_are_those_of_its_parts(tmp_path: Path) -> None:
    """Read in processes as large as memory allows; of one at a border nobody may see the end."""
    path = write(tmp_path / "long", *job(0, random.Random(3), pid=100, boot="a", steps=30_000))
    with open_session(path) as session:
        (whole,), (parts,) = ranks_of(session), ranks_of(session, memory=1)
    assert len(whole.begin) == 30_000
    assert whole.whole
    assert parts.whole
    assert np.array_equal(whole.begin, parts.begin)
    assert np.array_equal(whole.what, parts.what)
    assert np.count_nonzero(whole.done != parts.done) <= path.stat().st_size // (1 << 18)


@pytest.mark.parametrize(("lost", "kept", "whole"), [(10, slice(5, None), False), (60, slice(0, 30), True)])
def test_behind_a_loss_collectives_have_no_number_that_counts_from_the_start(
    lost: int, kept: slice, whole: bool, tmp_path: Path
) -> None:
    """Of what came before and after it the longer run is taken."""
    header, told = job(0, random.Random(3), pid=100, boot="a")
    place = 0
    for number, item in enumerate(told):
        if isinstance(item, np.ndarray):
            if place <= lost < place + len(item):
                told[number] = np.delete(item, lost - place)
            place += len(item)
    with open_session(write(tmp_path / "lossy", header, told)) as session:
        (rank,) = ranks_of(session)
    with open_session(write(tmp_path / "all", *job(0, random.Random(3), pid=100, boot="a"))) as session:
        (every,) = ranks_of(session)
    assert rank.whole == whole
    assert 0 < len(rank.begin) < JOB_STEPS
    assert set(rank.begin.tolist()) <= set(every.begin[kept].tolist())


def test_without_collectives_wall_clocks_are_compared_and_the_error_is_not_known(tmp_path: Path) -> None:
    header, told = job(0, random.Random(1), pid=100, boot="a")
    other_header, _ = job(5 * SECOND, random.Random(1), pid=100, boot="b")
    one = write(tmp_path / "one", header, told)
    silent = [items.apis(), items.process(100), items.mark(1, START + 6 * SECOND)]
    other = write(tmp_path / "other", other_header, silent)
    said = run("merge", str(one), str(other), "-o", str(tmp_path / "out")).stderr
    assert "wall clocks" in said
    assert "error: unknown" in said
    part = json.loads(run("inspect", "--json", str(tmp_path / "out")).stdout)["parts"][1]
    assert (part["clock"], part["later_ns"], part["error_ns"]) == ("wall", -5 * SECOND + 40 * MS, None)


def ranks(begin: list[int], done: list[int], *, whole: bool = True) -> list[Rank]:
    """One rank that made collectives of one kind."""
    return [Rank(np.full(len(begin), 4096), np.array(begin), np.array(done), whole)]


def test_collectives_that_contradict_each_other_are_not_believed() -> None:
    one = ranks([0, 100, 200], [10, 110, 210])
    drifting = ranks([0, 150, 300], [10, 160, 310])
    assert "no collectives" in str(by_collectives(one, drifting, None))
    assert by_collectives(one, [], None) == "they share no collectives"


def test_where_a_recording_began_in_the_middle_wall_clocks_say_which_collectives_are_the_same() -> None:
    begin, done = [100 * step for step in range(20)], [100 * step + 10 for step in range(20)]
    late = ranks([row + 5_000 for row in begin[4:]], [row + 5_000 for row in done[4:]], whole=False)
    found = by_collectives(ranks(begin, done), late, -5_010)
    assert not isinstance(found, str)
    assert (found.later_ns, found.error_ns) == (-5_000, 10)
    assert "in more than one way" in str(by_collectives(ranks(begin, done), late, None))
    assert "in more than one way" in str(by_collectives(ranks(begin, done), late, -5_050))
