"""Random programs of several threads, streams and processes: what is called idle is idle, by the truth."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.analysis.chains.analysis import analyse
from gputop.analysis.evidence.evidence import Evidence
from tests.gpu_truth import World
from tests.items import SECOND, START
from tests.programs import DEVICE_SYNC, LAUNCH, SYNC, US, started
from tests.random_worlds import DEEDS, false_gaps, microseconds, seeds, world


@pytest.mark.parametrize("deeds", DEEDS)
@seeds(50)
def test_every_gap_is_idle_and_the_bounds_hold_the_truth(deeds: str, seed: int) -> None:
    made = world(seed, deeds, handles=seed, threads=1 + seed % 3, processes=1 + seed % 2)
    analysis = made.program.analysis()
    assert not false_gaps(made, analysis)
    (span,) = analysis.gpu.spans
    truth = made.gpu.idle(*microseconds([span.begin, span.end])) * US
    assert span.empty_ns <= truth
    assert truth <= span.empty_ns + span.unknown_ns + span.outside_ns


def test_the_random_programs_hold_enough_to_be_wrong_about() -> None:
    gaps = sum(
        len(world(seed, deeds, handles=seed).program.analysis().gpu.gaps)
        for deeds in DEEDS
        for seed in range(9)
    )
    assert gaps > 200


def lemma(evidence: Evidence) -> list[tuple[int, int]]:
    """The lemma word for word (docs/explain.md), for streams that only syncs prove empty; O(n²)."""
    rows = [
        (name, int(call["begin"]), int(call["end"]), int(call["stream"]), int(call["ret"]))
        for name, call in (
            (
                evidence.apis.name(int(op)),
                {key: evidence.calls[key][row] for key in ("begin", "end", "stream", "ret")},
            )
            for row, op in enumerate(evidence.calls["op"])
        )
    ]
    given = [row for row in rows if row[4] == 0 and ("Launch" in row[0] or "Memset" in row[0])]
    said = [row for row in rows if row[4] == 0 and ("Synchronize" in row[0] or "Query" in row[0])]
    empty: list[list[tuple[int, int]]] = []
    for stream in {row[3] for row in given}:
        mine = [row for row in given if row[3] == stream]
        known = [(0, min(row[1] for row in mine))]
        for name, begin, end, of, _ret in said:
            if "Device" in name or of == stream:
                rest = [row[1] for row in mine if row[2] > begin]
                if not rest or min(rest) > end:
                    known.append((end, min(rest, default=1 << 62)))
        empty.append(known)
    shared = empty[0]
    for known in empty[1:]:
        shared = [(max(a, c), min(b, d)) for a, b in shared for c, d in known if max(a, c) < min(b, d)]
    first = min(row[1] for row in given)
    best = {until: at for at, until in sorted(shared, reverse=True) if at > first and until < 1 << 62}
    return sorted((at, until) for until, at in best.items())


@seeds(30)
def test_no_gap_of_the_lemma_is_missed(seed: int) -> None:
    made = World(seed, ("launch", "launch", "sync", "device_sync", "query"), (0x101, 0x103)[: 1 + seed % 2])
    made.run(1, 1 + seed % 3, 60)
    made.program.records = [one for one in made.program.records if one["kind"][0] != 2]  # no late returns
    evidence = made.program.evidence()
    gaps = analyse(evidence, (START, evidence.end_ns)).gpu.gaps
    assert list(zip(gaps.begin.tolist(), gaps.end.tolist(), strict=True)) == lemma(evidence)


@pytest.mark.parametrize("deeds", DEEDS)
@seeds(30)
def test_lost_records_never_make_a_gap_that_is_none(deeds: str, seed: int) -> None:
    made = world(seed, deeds, handles=seed, threads=1 + seed % 3)
    random = np.random.default_rng(seed)
    size = len(made.program.batch())
    for share in (1, 5, size // 4):
        dropped = random.choice(size - 2, min(share, size - 2), replace=False) + 1
        assert not false_gaps(made, made.program.analysis(dropped.tolist()))


@pytest.mark.parametrize("deeds", DEEDS)
@seeds(50)
def test_every_instant_of_a_gap_is_on_one_leaf(deeds: str, seed: int) -> None:
    analysis = world(seed, deeds, handles=seed, threads=3).program.analysis()
    gaps, segments = analysis.gaps, analysis.segments
    for gap, (begin, end) in enumerate(zip(gaps.begin.tolist(), gaps.end.tolist(), strict=True)):
        mine = segments.gap == gap
        order = np.argsort(segments.begin[mine])
        low, high = segments.begin[mine][order], segments.end[mine][order]
        assert [int(low[0]), *high[:-1].tolist(), int(high[-1])] == [begin, *low[1:].tolist(), end]


@pytest.mark.parametrize("wait", [SYNC, DEVICE_SYNC])
def test_a_lost_record_a_second_leaves_nine_tenths_of_the_gaps(wait: str) -> None:
    """Proved where the program waits for the whole GPU: what was lost may be on a stream that nobody saw."""
    program, step = started(), 13_000
    for begin in range(0, 10_000_000, step):
        program.call(LAUNCH, begin, begin + 8)
        program.call(wait, begin + 10, begin + 10_000)
    every = program.batch()
    whole = program.analysis().gpu.gaps
    random = np.random.default_rng(7)
    second = (every["t_end"].astype(np.int64) - START) // SECOND
    dropped = [int(random.choice(np.flatnonzero(second == number))) for number in range(1, 10)]
    left = program.analysis(dropped).gpu.gaps
    assert np.isin(left.begin, whole.begin).all()
    assert 0.9 * len(whole) < len(left) < len(whole)
    behind = left.begin > START + 2 * SECOND
    assert left.proved[left.begin < START + SECOND].all()
    assert left.proved[behind].all() if wait == DEVICE_SYNC else not left.proved[behind].any()
