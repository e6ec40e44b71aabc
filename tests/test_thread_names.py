"""Names of threads: copies grow apart, and share what they have in common."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from probes import thread_names
from probes.known import Known
from probes.source import NAMES, Sample
from probes.thread_names import ThreadNames

CHECKPOINTS, THREADS = 24, 20_000


def told(*tids: int, pid: int = 7, name: str = "sh") -> Sample:
    return Sample(NAMES, 1, {"tid": [*tids], "pid": [pid] * len(tids), "name": [name] * len(tids)})


@pytest.mark.parametrize("seed", range(5))
def test_copies_are_what_tables_of_their_own_would_be(seed: int) -> None:
    dice = random.Random(seed)
    found: list[tuple[ThreadNames, dict[int, tuple[int, str]]]] = [(ThreadNames(), {})]
    for _ in range(3_000):
        names, plain = dice.choice(found)
        match dice.random():
            case part if part < 0.9:
                tid = dice.randrange(200)
                row = dice.choice((tid, dice.randrange(9))), str(dice.random())
                names[tid] = row
                plain.pop(tid, None)
                plain[tid] = row
            case part if part < 0.93 and len(found) < 12:
                found.append((names.copy(), dict(plain)))
            case part if part < 0.94:
                gone = {dice.randrange(200)}
                names.forget(gone)
                for tid in [tid for tid, row in plain.items() if row[0] in gone]:
                    del plain[tid]
            case part if part < 0.95:
                other, others = dice.choice(found)
                if other is not names:
                    names.update(other)
                    for tid, row in others.items():
                        plain.pop(tid, None)
                        plain[tid] = row
    for names, plain in found:
        assert list(names.items()) == list(plain.items())
        assert all(names.get(tid) == plain.get(tid) for tid in range(200))
        for pid in range(9):
            assert list(names.of(pid)) == [name for owner, name in plain.values() if owner == pid]


def test_a_copy_each_half_minute_takes_little_more_than_one_table() -> None:
    known, copies, number = Known(), [], 0
    for _ in range(CHECKPOINTS):
        known.consume(told(*range(number, number + THREADS // CHECKPOINTS)))
        number += THREADS // CHECKPOINTS
        copies.append(known.copy())
    tables = {id(layer): layer for one in (known, *copies) for layer in one.names.layers}
    assert sum(map(len, tables.values())) < 5 * THREADS, "25 tables of their own are 12.5 times as many"
    assert [len(list(one.names.items())) for one in copies] == [
        (place + 1) * (THREADS // CHECKPOINTS) for place in range(CHECKPOINTS)
    ]


def test_the_newest_names_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_names, "MOST_NAMES", 100)
    known = Known()
    known.consume(told(1, name="kcompactd0"))
    for tid in range(1_000, 1_300):
        known.consume(told(tid))
        if tid % 50 == 0:
            known.copy()
            known.consume(told(1, name="kcompactd0"))
    assert len(list(known.names.items())) <= 200
    assert known.names.get(1) == (7, "kcompactd0")
    assert known.names.get(1_299) == (7, "sh")
    assert known.names.get(1_000) is None


def test_numbers_of_any_size_are_kept_or_left_out() -> None:
    names = ThreadNames()
    for tid in (5, -7, 1 << 40, 1 << 70):
        names[tid] = (tid, "sh")
        names.copy()
    assert names.get(1 << 40) == (1 << 40, "sh")
    assert [tid for tid, _row in names.items()] == [5, -7, 1 << 40]
    assert names.get(1 << 70) is None
    names.forget({1 << 70, -7})
    assert [tid for tid, _row in names.items()] == [5, 1 << 40]


@pytest.mark.parametrize("own", [True, False])
def test_a_name_takes_20_bytes(own: bool) -> None:
    """A screen keeps four tables, of up to 65,536 threads that came and went each."""
    samples = [
        told(*range(begin, begin + 50), pid=begin if own else 7, name=f"worker {begin % 9}")
        for begin in range(1_000_000, 1_020_000, 50)
    ]
    tracemalloc.start()
    try:
        known = Known()
        for sample in samples:
            known.consume(sample)
        each = tracemalloc.get_traced_memory()[0] / 20_000
    finally:
        tracemalloc.stop()
    assert known.names.get(1_000_057) == (1_000_050 if own else 7, f"worker {1_000_050 % 9}")
    assert each < 25, each
