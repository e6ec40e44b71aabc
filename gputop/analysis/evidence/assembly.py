"""Gathered records as evidence: sorted by thread and time, with lives of threads and losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gputop.analysis.evidence.blocking import kinds_of
from gputop.analysis.evidence.call_context import with_lines
from gputop.analysis.evidence.columns import FOREVER, Ints, Mask, shared_value, union
from gputop.analysis.evidence.evidence import (
    CALL_COLUMNS,
    LIFE_COLUMNS,
    MOST_TIDS,
    SLICE_COLUMNS,
    TIME_BITS,
    Column,
    Columns,
    Evidence,
    Table,
    Threads,
    no_places,
)
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.engine.facts import began_ns
from gputop.engine.threads.occupancy import SEGMENT
from gputop.engine.threads.switches import OpenThreads
from probes.proc.syscalls import machine_of
from probes.schema import NO_SYSCALL, Kind, OffFlag

_FEW = 1 << 16  # thread ids that are sorted sooner than a table of all there may be is filled
_ENOUGH = 1 << 14  # rows of a part: a column of it fits into the processor's cache


def different(columns: Sequence[Column]) -> Ints:
    """Return each thread id of some columns once, ascending."""
    if sum(map(len, columns)) <= _FEW:
        return np.unique(np.concatenate([np.zeros(0, np.uint32), *columns])).astype(np.int64)
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
    """Return one table, sorted by thread, then begin; with the thread's row as a column.

    Each part is sorted by itself, while it is in the processor's cache, and copied to the place of its
    threads' rows in the whole: of ten million calls there is neither time for a sort nor room for two tables.

    Args:
        parts: Tables with the columns of ``dtype``, in the order of recording.
        dtype: The columns.
        threads: All threads of the parts.
        start_ns: Begins before it count as equal.
        consume: Remove each part's columns once they are copied.
    """
    parts = list(_large(parts, dtype, consume=consume))
    every = threads.row(np.concatenate([np.zeros(0, np.uint32), *(part["tid"] for part in parts)]))
    if len(threads.tid) <= 1 << 16:  # small numbers are sorted by counting
        every = every.astype(np.uint16)
    rows = np.split(every, np.cumsum([len(part) for part in parts])[:-1]) if parts else []
    counts = [np.bincount(row, minlength=len(threads.tid)) for row in rows]
    total = np.sum([np.zeros(len(threads.tid), np.int64), *counts], axis=0)
    place = np.cumsum(total) - total
    out: dict[str, Column] = {}
    for name in dtype.names or ():
        one = shared_value([part[name] for part in parts])
        out[name] = np.empty(int(total.sum()), dtype[name]) if one is None else one
    names = [name for name, column in out.items() if column.flags.writeable]
    for part, row, count in zip(parts, rows, counts, strict=True):
        order = np.argsort(row, kind="stable")
        mine = np.flatnonzero(count)
        ends = np.cumsum(count[mine])
        bounds = (place[mine], (place + count)[mine], ends - count[mine], ends)
        pieces = list(zip(*(column.tolist() for column in bounds), strict=True))
        place += count
        for name in names:
            ordered = (part.pop(name) if consume else part[name]).take(order)
            whole = out[name]
            for first, last, begin, end in pieces:
                whole[first:last] = ordered[begin:end]
    out["row"] = np.repeat(np.arange(len(threads.tid)), total)
    return _in_time(Columns(out), start_ns)


def _large(parts: Sequence[Columns], dtype: np.dtype[np.void], *, consume: bool) -> Iterator[Columns]:
    """Join neighbours up to ``_ENOUGH`` rows: each part costs a copy for every thread and column."""
    few: list[Columns] = []
    rows = 0
    for part, after in zip(parts, [*parts[1:], None], strict=False):
        few.append(part)
        rows += len(part)
        if after is not None and rows + len(after) <= _ENOUGH:
            continue
        joined = few[0] if len(few) == 1 else Columns.join(few, dtype)
        if consume and len(few) > 1:
            for one in few:
                for name in dtype.names or ():
                    one.pop(name)
        yield joined
        few, rows = [], 0


def _in_time(columns: Columns, start_ns: int) -> Columns:
    """Sort by time within each thread, where records of several CPUs are not in order."""
    row, begin = columns["row"], columns["begin"]
    if ((row[1:] > row[:-1]) | (begin[1:] >= begin[:-1])).all():
        return columns
    order = np.argsort((row << TIME_BITS) | np.maximum(begin - start_ns, 0), kind="stable")
    return Columns(
        {
            name: column[order] if column.strides != (0,) else column
            for name, column in ((name, columns.pop(name)) for name in columns.names())
        }
    )


def assemble(gatherer: Gatherer, since_ns: int | None = None, *, consume: bool = False) -> Evidence:
    """Return the evidence of all that a gatherer holds.

    Args:
        gatherer: The records.
        since_ns: Older times need no exact order; None without any.
        consume: Remove it from the gatherer, so that memory holds it once.
    """
    ticks = gatherer.ticks
    calls = [part for tick in ticks for part in tick.calls]
    slices = [part for tick in ticks for part in tick.slices]
    slices.append(_open_slices(gatherer.open, gatherer.end_ns, slices))
    inner = Columns.join((part for tick in ticks for part in tick.inner), CALL_COLUMNS)
    open_calls = _open_calls(gatherer.open, calls)
    lives = np.concatenate([np.zeros(0, LIFE_COLUMNS), *gatherer.lives])
    start = since_ns or int(gatherer.header.get("start_ns", 0))
    if since_ns is None:
        begins = [int(part["begin"].min()) for part in (*calls, *slices) if len(part)]
        start = min([start or FOREVER, *begins]) if begins else start
    threads = _threads(calls, slices, lives)
    in_order = by_thread(calls, CALL_COLUMNS, threads, start, consume=consume)
    off_cpu = by_thread(slices, SLICE_COLUMNS, threads, start, consume=consume)
    _live(threads, in_order, off_cpu, lives)
    off_cpu = _disjoint(off_cpu, start)
    waits = kinds_of(off_cpu, machine_of(gatherer.header), gatherer.descriptors.names)
    lost = gatherer.losses.intervals()
    return Evidence(
        start_ns=start,
        end_ns=gatherer.end_ns,
        apis=gatherer.apis,
        facts=gatherer.facts,
        threads=threads,
        calls=with_lines(in_order, off_cpu, threads, gatherer.facts),
        inner=inner,
        slices=off_cpu.with_columns(wait=waits),
        on_cpu=np.concatenate([np.zeros(0, SEGMENT), *(part for tick in ticks for part in tick.on_cpu)]),
        moves=np.concatenate([np.zeros(0, SEGMENT), *(part for tick in ticks for part in tick.moves)]),
        places=np.concatenate([no_places(), *(part for tick in ticks for part in tick.places)]),
        open_calls=open_calls,
        lost=lost,
        lost_events=max(gatherer.counted_lost, gatherer.losses.records),
        complete=_complete(lives, gatherer),
        ended=group_ends(lives),
        gpus=tuple(gatherer.gpus),
        activities=gatherer.activities.table(),
        files=tuple(gatherer.descriptors.names),
        header=gatherer.header,
        failed=gatherer.failed,
        held=gatherer.held,
        choices_kept=gatherer.choices_kept,
        unkept=union(*np.array(gatherer.unkept, np.int64).reshape(-1, 2).T),
    )


def _disjoint(slices: Columns, start_ns: int) -> Columns:
    """Cut overlapping intervals of damaged files: a thread is off its CPU once at a time."""
    if not len(slices):
        return slices
    width = 1 << TIME_BITS
    row, begin = slices["row"], slices["begin"]
    reach = np.maximum.accumulate(row * width + np.clip(slices["end"] - start_ns, 0, width - 1))
    before = np.append(0, reach[:-1]) - row * width + start_ns
    if (begin >= before).all():
        return slices
    begin = np.maximum(begin, before)
    end = np.maximum(slices["end"], begin)
    cut = slices.with_columns(begin=begin, end=end, queued=np.clip(slices["queued"], begin, end))
    return cut.take(np.flatnonzero(end > begin))


def _since_returned(still: OpenThreads, since: Ints, parts: Sequence[Columns]) -> Mask:
    """Return the threads with a later record: a file that breaks off has records after its last mark."""
    tids = np.array(still.tid, np.int64)
    known = since > 0
    if not known.any():
        return np.zeros(len(tids), np.bool_)
    order = np.argsort(tids)
    latest = np.zeros(len(tids), np.int64)  # by ascending thread id
    least = since[known].min()
    for part in parts:
        recent = np.flatnonzero(part["end"] > least)
        if not len(recent):
            continue
        recent = recent[np.isin(part["tid"][recent], tids[known])]
        np.maximum.at(latest, np.searchsorted(tids[order], part["tid"][recent]), part["end"][recent])
    result = np.zeros(len(tids), np.bool_)
    result[order] = latest > since[order]
    return result & known


def _open_slices(still: OpenThreads, end_ns: int, slices: Sequence[Columns]) -> Columns:
    """Return the intervals off the CPU that are open at the last mark: until the far future."""
    off = np.array(still.off_since, np.int64)
    queued = np.array(still.queued_since, np.int64)
    chosen = (off > 0) & (off <= end_ns) & ~_since_returned(still, off, slices)
    rows = int(np.count_nonzero(chosen))
    columns: dict[str, Column] = {
        name: np.zeros(rows, SLICE_COLUMNS[name]) for name in SLICE_COLUMNS.names or ()
    }
    columns["begin"] = off[chosen]
    columns["end"] = np.full(rows, FOREVER, np.int64)
    columns["queued"] = np.where(queued[chosen] > 0, queued[chosen], FOREVER)
    columns["tid"] = np.array(still.tid, np.uint32)[chosen]
    columns["pid"] = np.array(still.pid, np.uint32)[chosen]
    columns["syscall"] = np.full(rows, NO_SYSCALL, np.uint16)
    columns["flags"] = np.full(rows, OffFlag.WAKE_MISSED, np.uint16)
    return Columns(columns)


def _open_calls(still: OpenThreads, calls: Sequence[Columns]) -> Table:
    """Return the outermost calls under way at the last mark."""
    op, since = np.array(still.op, np.int64), np.array(still.call_since, np.int64)
    chosen = (op >= 0) & ~_since_returned(still, since, calls)
    table = np.zeros(
        int(np.count_nonzero(chosen)), [("tid", "<u4"), ("pid", "<u4"), ("op", "<u2"), ("begin", "<i8")]
    )
    table["tid"], table["pid"] = np.array(still.tid, np.int64)[chosen], np.array(still.pid, np.int64)[chosen]
    table["op"], table["begin"] = op[chosen], since[chosen]
    return table


def _threads(calls: Sequence[Columns], slices: Sequence[Columns], lives: Table) -> Threads:
    """Return the threads, with their ids only."""
    tids = different([part["tid"] for part in (*calls, *slices)] + [lives["tid"]])
    size = len(tids)
    never = np.full(size, FOREVER, np.int64)
    return Threads(tids, np.zeros(size, np.int64), never, never.copy(), np.full(size, -1, np.int64))


def _live(threads: Threads, calls: Columns, slices: Columns, lives: Table) -> None:
    """Fill in the threads' processes and lives."""
    for columns in (calls, slices):
        threads.pid[columns["row"]] = columns["pid"]
    place = np.searchsorted(threads.tid, lives["tid"])
    threads.pid[place] = lives["pid"]
    # a thread without a recorded birth is known from its first record on
    np.minimum.at(threads.known, slices["row"], slices["begin"])
    order = np.argsort(lives["at"], kind="stable")
    lives, place = lives[order], place[order]
    died, forked = lives["kind"] == Kind.EXIT.value, lives["kind"] == Kind.FORK.value
    np.minimum.at(threads.known, place[~died], lives["at"][~died])
    threads.ended[place] = np.where(died, lives["at"], FOREVER)  # what came last stays
    makers = lives["maker"][forked]
    maker = np.minimum(np.searchsorted(threads.tid, makers), len(threads.tid) - 1)
    known = threads.tid[maker] == makers
    threads.parent[place[forked][known]] = maker[known]


def _complete(lives: Table, gatherer: Gatherer) -> frozenset[int]:
    """Return the processes whose birth or program's start was recorded."""
    born = (lives["kind"] == Kind.EXEC) | ((lives["kind"] == Kind.FORK) & (lives["tid"] == lives["pid"]))
    since = int(gatherer.header.get("start_ns", FOREVER))
    started = {
        pid
        for pid, facts in gatherer.facts.processes.items()
        if (began := began_ns(facts, gatherer.header)) is not None and began > since
    }
    return frozenset(lives["pid"][born].tolist()) | started | gatherer.complete


def group_ends(lives: Table) -> dict[int, int]:
    """Return the end of each process's last thread, with which its GPU contexts end."""
    last: dict[int, int] = {}
    exits = lives[lives["dead"]]
    for pid, at in zip(exits["pid"].tolist(), exits["at"].tolist(), strict=True):
        last[pid] = max(last.get(pid, 0), at)
    return last
