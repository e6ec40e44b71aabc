"""Sorts what was gathered: threads with their lives, calls and slices by thread, losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gputop.explain.evidence import (
    CALL_COLUMNS,
    LIFE_COLUMNS,
    MANY,
    MOST_TIDS,
    SLICE_COLUMNS,
    STINT_COLUMNS,
    TIME_BITS,
    Column,
    Columns,
    Evidence,
    Gatherer,
    Table,
    Threads,
)
from gputop.explain.ranges import Ints, Mask
from gputop.explain.waits import wait_table
from gputop.switches import OpenThreads
from probes.schema import NO_SYSCALL, Kind, OffFlag

FOREVER = 1 << 62


def assemble(gatherer: Gatherer, since_ns: int | None = None, *, consume: bool = False) -> Evidence:
    """The evidence of everything that the gatherer holds.

    Args:
        gatherer: What was taken in.
        since_ns: Of what is older only the order need be told apart; None where nothing is.
        consume: Take it out of the gatherer, so that there is room for it but once.
    """
    ticks = gatherer.ticks
    calls = Columns.join((part for tick in ticks for part in tick.calls), CALL_COLUMNS, consume=consume)
    inner = Columns.join((part for tick in ticks for part in tick.inner), CALL_COLUMNS)
    slices = Columns.join((part for tick in ticks for part in tick.slices), SLICE_COLUMNS, consume=consume)
    slices = Columns.join([slices, _open_slices(gatherer.open, gatherer.end_ns, slices)], SLICE_COLUMNS)
    open_calls = _open_calls(gatherer.open, calls)
    lives = np.concatenate([np.zeros(0, LIFE_COLUMNS), *gatherer.lives])
    threads = _threads(calls, slices, lives)
    start = since_ns or int(gatherer.header.get("start_ns", 0))
    for columns in (calls, slices):
        if len(columns) and since_ns is None:
            start = min(start, int(columns["begin"].min())) if start else int(columns["begin"].min())
    lost = gatherer.losses.intervals()
    return Evidence(
        start_ns=start,
        end_ns=gatherer.end_ns,
        apis=gatherer.apis,
        facts=gatherer.facts,
        threads=threads,
        calls=_by_thread(calls, threads, start),
        inner=inner,
        slices=_disjoint(_by_thread(slices, threads, start), start),
        stints=_joined([part for tick in ticks for part in tick.stints]),
        moves=_joined([part for tick in ticks for part in tick.moves]),
        open_calls=open_calls,
        lost=lost,
        lost_events=max(gatherer.counted_lost, gatherer.losses.records),
        complete=_complete(lives, gatherer),
        ended=group_ends(lives),
        gpus=tuple(gatherer.gpus),
        waits=wait_table(_machine(gatherer.header)),
        header=gatherer.header,
    )


def _machine(header: Mapping[str, Any]) -> str:
    """As ``uname -m``; recordings from before it was written came from x86-64."""
    machine = header.get("machine")
    return str(machine.get("architecture", "x86_64")) if isinstance(machine, Mapping) else "x86_64"


def _joined(parts: list[Table]) -> Table:
    return np.concatenate([np.zeros(0, STINT_COLUMNS), *parts])


def _by_thread(columns: Columns, threads: Threads, start_ns: int) -> Columns:
    """Sorted by thread, then begin; with the thread's row as a column. Takes the columns out of the table.

    One column at a time: of ten million calls there is no room for two tables.
    """
    row = threads.row(columns["tid"])
    # records come in the order of time but for those of other CPUs, so sorting by thread is nearly all of it
    small = row.astype(np.uint16) if len(threads.tid) <= 1 << 16 else row
    order = np.argsort(small, kind="stable")
    row = row[order]
    begin = columns["begin"][order]
    if not ((row[1:] > row[:-1]) | (begin[1:] >= begin[:-1])).all():
        again = np.argsort((row << TIME_BITS) | np.maximum(begin - start_ns, 0), kind="stable")
        order = order[again]
    sorted_columns = {name: columns.pop(name)[order] for name in columns.names()}
    sorted_columns["row"] = row
    return Columns(sorted_columns)


def _disjoint(slices: Columns, start_ns: int) -> Columns:
    """A thread is off its CPU once at a time: what a damaged file says beyond that is cut off."""
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
    columns = {name: slices[name] for name in slices.names()}
    columns.update(begin=begin, end=end, queued=np.clip(slices["queued"], begin, end))
    return Columns(columns).take(np.flatnonzero(end > begin))


def _since_returned(still: OpenThreads, since: Ints, columns: Columns) -> Mask:
    """Threads of whom a later record exists: a file that breaks off has records after its last mark."""
    tids = np.array(still.tid, np.int64)
    if not len(tids):
        return np.zeros(0, np.bool_)
    recent = np.flatnonzero(columns["end"] > since.min())
    recent = recent[np.isin(columns["tid"][recent], tids)]
    tid, end = columns["tid"][recent].astype(np.int64), columns["end"][recent]
    order = np.lexsort((end, tid))
    tid, end = tid[order], end[order]
    place = np.searchsorted(tid, tids, side="right") - 1
    if not len(tid):
        return np.zeros(len(tids), np.bool_)
    result: Mask = (place >= 0) & (tid[np.maximum(place, 0)] == tids) & (end[np.maximum(place, 0)] > since)
    return result


def _open_slices(still: OpenThreads, end_ns: int, slices: Columns) -> Columns:
    """Stays off the CPU that had not ended at the last mark: until the far future."""
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


def _open_calls(still: OpenThreads, calls: Columns) -> Table:
    """Outermost calls under way at the last mark."""
    op, since = np.array(still.op, np.int64), np.array(still.call_since, np.int64)
    chosen = (op >= 0) & ~_since_returned(still, since, calls)
    table = np.zeros(
        int(np.count_nonzero(chosen)), [("tid", "<u4"), ("pid", "<u4"), ("op", "<u2"), ("begin", "<i8")]
    )
    table["tid"], table["pid"] = np.array(still.tid, np.int64)[chosen], np.array(still.pid, np.int64)[chosen]
    table["op"], table["begin"] = op[chosen], np.array(still.call_since, np.int64)[chosen]
    return table


def _different(tids: Column) -> Ints:
    """Each thread id once."""
    if len(tids) > MANY and tids.max() < MOST_TIDS:
        seen = np.zeros(MOST_TIDS, np.bool_)
        seen[tids] = True
        return np.flatnonzero(seen)
    return np.unique(tids).astype(np.int64)


def _threads(calls: Columns, slices: Columns, lives: Table) -> Threads:
    tids = np.unique(np.concatenate([_different(columns["tid"]) for columns in (calls, slices, lives)]))
    size = len(tids)
    pid, known = np.zeros(size, np.int64), np.full(size, FOREVER, np.int64)
    ended, parent = np.full(size, FOREVER, np.int64), np.full(size, -1, np.int64)
    threads = Threads(tids, pid, known, ended, parent)
    for columns in (calls, slices):
        pid[threads.row(columns["tid"])] = columns["pid"]
    place = np.searchsorted(tids, lives["tid"])
    pid[place] = lives["pid"]
    # Without a birth on record a thread is known from its first record on.
    np.minimum.at(known, threads.row(slices["tid"]), slices["begin"])
    order = np.argsort(lives["at"], kind="stable")
    for life, row in zip(lives[order], place[order].tolist(), strict=True):
        at = int(life["at"])
        if life["kind"] == Kind.EXIT:
            ended[row] = at
        else:
            known[row], ended[row] = min(int(known[row]), at), FOREVER
            if life["kind"] == Kind.FORK:
                maker = int(np.searchsorted(tids, life["maker"]))
                if maker < size and tids[maker] == life["maker"]:
                    parent[row] = maker
    return threads


def _complete(lives: Table, gatherer: Gatherer) -> frozenset[int]:
    """Processes whose birth or whose program's start was seen."""
    born = (lives["kind"] == Kind.EXEC) | ((lives["kind"] == Kind.FORK) & (lives["tid"] == lives["pid"]))
    clock = gatherer.header.get("clock", {})
    asleep = int(clock.get("boottime_ns", 0)) - int(clock.get("monotonic_ns", 0))
    started = {
        pid
        for pid, facts in gatherer.facts.processes.items()
        if "boottime_ns" in clock
        and int(facts.get("start_ns", 0)) - asleep > int(gatherer.header.get("start_ns", FOREVER))
    }
    return frozenset(lives["pid"][born].tolist()) | started


def group_ends(lives: Table) -> dict[int, int]:
    """When each process's last thread ended: its GPU contexts end with it."""
    last: dict[int, int] = {}
    exits = lives[lives["dead"]]
    for pid, at in zip(exits["pid"].tolist(), exits["at"].tolist(), strict=True):
        last[pid] = max(last.get(pid, 0), at)
    return last
