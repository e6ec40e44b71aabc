"""Puts the parts of a table, each in the order of time, into the order of threads and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gputop.explain.evidence.evidence import MOST_TIDS, TIME_BITS, Column, Columns, Threads
from gputop.explain.evidence.ranges import Ints

_ENOUGH = 1 << 14  # rows of a part: a column of it fits into the processor's cache


def different(columns: Sequence[Column]) -> Ints:
    """Each thread id of some columns once, ascending."""
    seen = np.zeros(MOST_TIDS, np.bool_)
    beyond = [np.zeros(0, np.int64)]
    for tids in columns:
        if len(tids) and tids.max() >= MOST_TIDS:
            beyond.append(np.unique(tids).astype(np.int64))
        else:
            seen[tids] = True
    return np.unique(np.concatenate([np.flatnonzero(seen), *beyond]))


def by_thread(
    parts: Sequence[Columns], dtype: np.dtype[np.void], threads: Threads, start_ns: int, *, consume: bool
) -> Columns:
    """One table, sorted by thread, then begin; with the thread's row as a column.

    Each part is sorted by itself, while it is in the processor's cache, and copied to where its threads' rows
    lie in the whole: of ten million calls there is neither time for a sort nor room for two tables.

    Args:
        parts: Tables with the columns of ``dtype``, in the order in which they were observed.
        dtype: The columns.
        threads: Where the rows of all thread ids that the parts mention are looked up.
        start_ns: Of begins before it only that they are before matters.
        consume: Take each part's columns out of it once they are copied.
    """
    parts = list(_large(parts, dtype, consume=consume))
    every = threads.row(np.concatenate([np.zeros(0, np.uint32), *(part["tid"] for part in parts)]))
    if len(threads.tid) <= 1 << 16:  # small numbers are sorted by counting
        every = every.astype(np.uint16)
    rows = np.split(every, np.cumsum([len(part) for part in parts])[:-1]) if parts else []
    counts = [np.bincount(row, minlength=len(threads.tid)) for row in rows]
    total = np.sum([np.zeros(len(threads.tid), np.int64), *counts], axis=0)
    place = np.cumsum(total) - total
    names = dtype.names or ()
    out: dict[str, Column] = {name: np.empty(int(total.sum()), dtype[name]) for name in names}
    for part, row, count in zip(parts, rows, counts, strict=True):
        order = np.argsort(row, kind="stable")
        mine = np.flatnonzero(count)
        ends = np.cumsum(count[mine])
        pieces = list(
            zip(
                place[mine].tolist(),
                (place + count)[mine].tolist(),
                (ends - count[mine]).tolist(),
                ends.tolist(),
                strict=True,
            )
        )
        place += count
        for name in names:
            ordered = (part.pop(name) if consume else part[name]).take(order)
            whole = out[name]
            for first, last, begin, end in pieces:
                whole[first:last] = ordered[begin:end]
    out["row"] = np.repeat(np.arange(len(threads.tid)), total)
    return _in_time(Columns(out), start_ns)


def _large(parts: Sequence[Columns], dtype: np.dtype[np.void], *, consume: bool) -> Iterator[Columns]:
    """The parts, neighbours joined up to ``_ENOUGH`` rows: each costs a copy for every thread and column."""
    few: list[Columns] = []
    for part, after in zip(parts, [*parts[1:], None], strict=False):
        few.append(part)
        if after is not None and sum(map(len, few)) + len(after) <= _ENOUGH:
            continue
        joined = few[0] if len(few) == 1 else Columns.join(few, dtype)
        if consume and len(few) > 1:
            for one in few:
                for name in dtype.names or ():
                    one.pop(name)
        yield joined
        few = []


def _in_time(columns: Columns, start_ns: int) -> Columns:
    """Records come in the order of time but for those of other CPUs: seldom is there anything left to do."""
    row, begin = columns["row"], columns["begin"]
    if ((row[1:] > row[:-1]) | (begin[1:] >= begin[:-1])).all():
        return columns
    order = np.argsort((row << TIME_BITS) | np.maximum(begin - start_ns, 0), kind="stable")
    return Columns({name: columns.pop(name)[order] for name in columns.names()})
