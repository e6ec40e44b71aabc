"""Identity is exact: what is equal gets one number, what is different never shares it.

Handles are what a program makes them: these are some that a multiplication and an ``xor`` take for one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from gputop.analysis.evidence import columns
from gputop.analysis.evidence.columns import Identities, first_seen, group_ids, numbered
from tests.programs import EVENT_SYNC, LAUNCH, MAIN, RECORD, SYNC, Program, started

MULTIPLIER = 0x9E3779B97F4A7C15
INVERSE = pow(MULTIPLIER, -1, 1 << 64)
OTHER = 20  # another process
HANDLE = 0x7F31_0000_1000


def mixed(*columns: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A hash of several columns as one writes it."""
    result = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        result = (result ^ column) * np.uint64(MULTIPLIER)
        result ^= result >> np.uint64(29)
    return result


def added(handle: int, pid: int, other: int) -> int:
    """A handle of another process for which ``handle * MULTIPLIER + (pid << 32)`` is the same."""
    return (handle + ((pid - other) << 32) * INVERSE) % (1 << 64)


def crossed(handle: int, pid: int, other: int) -> int:
    """A handle of another process for which ``handle * MULTIPLIER ^ (pid << 20)`` is the same."""
    return ((handle * MULTIPLIER ^ pid << 20 ^ other << 20) * INVERSE) % (1 << 64)


def rows(*columns: list[int]) -> tuple[npt.NDArray[np.uint64], ...]:
    return tuple(np.array(column, np.uint64) for column in columns)


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [1, 7, 5_000, 300_000])
def test_numbers_and_values_are_one_to_one(distinct: int) -> None:
    random = np.random.default_rng(distinct)
    handles = random.integers(0, 1 << 63, distinct, dtype=np.uint64) | np.uint64(1 << 63)
    values = handles[random.integers(0, distinct, 2 * distinct)]
    ids, known = numbered(values)
    assert len(ids) == len(values)
    assert (known[ids] == values).all()
    assert len(np.unique(ids)) == len(np.unique(values)) == len(np.unique(known))


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [1, 12, 300_000])
def test_of_what_is_left_out_as_seen_before_an_earlier_row_is_equal(distinct: int) -> None:
    random = np.random.default_rng(distinct)
    handles = random.integers(0, distinct, 2 * distinct + 100).astype(np.uint64) * np.uint64(HANDLE)
    threads = np.sort(random.integers(0, 3, len(handles)))
    left = first_seen(threads, handles)
    assert (np.diff(left) > 0).all()
    _pairs, first = np.unique(np.stack([threads.astype(np.uint64), handles], 1), axis=0, return_index=True)
    assert set(first.tolist()) <= set(left.tolist())
    if distinct < 1_000:
        assert len(left) == len(first)  # few kinds: each has a slot of its own
    assert not len(first_seen(threads[:0], handles[:0]))


def test_neighbouring_handles_are_distinguished() -> None:
    values = np.arange(1 << 18, dtype=np.uint64) * np.uint64(16)
    ids, known = numbered(values)
    assert (known[ids] == values).all()


def test_nothing_has_no_numbers() -> None:
    ids, known = numbered(np.zeros(0, np.uint64))
    assert (len(ids), len(known)) == (0, 0)


def test_columns_that_collide_when_they_are_mixed_are_two() -> None:
    one, other = mixed(np.array([1], np.uint64)), mixed(np.array([2], np.uint64))
    # what the second column has to be so that the hashes of (1, ...) and (2, ...) are equal
    left, right = rows([1, 2], [5, 5 ^ int(one[0]) ^ int(other[0])])
    assert len(np.unique(mixed(left, right))) == 1
    assert group_ids(left, right).tolist() == [0, 1]


@pytest.mark.parametrize("most", [1, 3, 1 << 12, 1 << 40])
@pytest.mark.parametrize("count", [0, 1, 10, 5_000])
def test_rows_are_numbered_as_sorting_them_would(count: int, most: int) -> None:
    random = np.random.default_rng(count + most)
    columns = [random.integers(0, most, count, dtype=np.uint64) for _ in range(3)]
    table = np.stack(columns, axis=1)
    _unique, number = np.unique(table, axis=0, return_inverse=True)
    assert group_ids(*columns).tolist() == number.reshape(-1).tolist()


@pytest.mark.parametrize("table", [0, 1 << 20])
def test_other_rows_are_found_or_are_none_of_them(table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a table of numbers, and where there are too many for one."""
    monkeypatch.setattr(columns, "TABLE_SLOTS", table)
    known = Identities(*rows([1, 1, 2, 1], [7, 8, 7, 7]))
    assert (len(known), known.number.tolist()) == (3, [0, 1, 2, 0])
    assert known.find(*rows([2, 2, 1, 3, 1], [7, 8, 8, 7, 9])).tolist() == [2, -1, 1, -1, -1]
    single = Identities(*rows([5, 3, 5]))
    assert single.find(*rows([3, 4, 5])).tolist() == [0, -1, 1]
    alone = Identities(*rows([1, 1], [7, 8]))
    assert alone.find(*rows([1, 2], [8, 8])).tolist() == [1, -1]
    assert Identities(*rows([], [])).find(*rows([1], [7])).tolist() == [-1]


def two_processes() -> Program:
    """Two that share a GPU; the second one never waits."""
    program = started()
    program.starts(OTHER)
    program.call(LAUNCH, 0, 10, stream=HANDLE)
    return program


def test_a_stream_of_another_process_is_never_mistaken_for_this_one() -> None:
    program = two_processes()
    program.call(LAUNCH, 20, 30, pid=OTHER, stream=added(HANDLE, MAIN, OTHER))
    program.call(SYNC, 100, 1000, stream=HANDLE)
    program.call(LAUNCH, 3000, 3010, stream=HANDLE)
    assert program.gaps() == []


def test_an_event_of_another_process_is_never_mistaken_for_this_one() -> None:
    program = two_processes()
    program.call(RECORD, 20, 30, stream=HANDLE, aux=HANDLE)
    program.call(LAUNCH, 40, 50, pid=OTHER, stream=HANDLE)
    program.call(EVENT_SYNC, 100, 1000, pid=OTHER, aux=crossed(HANDLE, MAIN, OTHER))
    program.call(SYNC, 1100, 1200, pid=OTHER, stream=HANDLE)
    program.call(LAUNCH, 3000, 3010, stream=HANDLE)
    assert program.gaps() == []


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64])
def test_codes_of_an_enum_are_found_as_numpy_finds_them(dtype: type[np.integer]) -> None:
    values = np.arange(256).astype(dtype)
    for codes in ([], [0], [3, 255], range(0, 256, 7)):
        assert (columns.among(values, codes) == np.isin(values, list(codes))).all()
    assert not columns.among(np.array([-1]), [0, 1]).any(), "-1 stands for none"
