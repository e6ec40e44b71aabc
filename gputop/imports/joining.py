"""Links the rows of a trace: calls within calls and operators, GPU work and its call."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import numpy as np

from gputop.analysis.evidence.api_classes import PYTHON, WAIT
from gputop.imports.gathered import ACTIVITY_COLUMNS, CALL_COLUMNS, FIRST_STACK, GatheredTrace
from gputop.imports.names import FRAME_KINDS, collective_of, frame_of
from gputop.imports.spool import Ints, Key, Rows, Spool

_TIME_BITS: Final = 47
_NEVER: Final = -(1 << 62)
_DEEPEST: Final = 32  # frames of a stack that are reported
_MOST_NODES: Final = 400_000  # of the tree of stacks
_UNNAMED: Final = 0


def join(trace: GatheredTrace) -> None:
    """Replace the tables of calls and activities by linked ones."""
    if not len(trace.calls):
        _link(trace)
        return
    rank, start = _ranks(trace), _start(trace)

    def by_thread(rows: Rows) -> Ints:
        begin = np.clip(rows["begin"] - start, 0, (1 << _TIME_BITS) - 1)
        place = np.searchsorted(rank, rows["tid"]).astype(np.int64) << _TIME_BITS
        key: Ints = place | begin
        return key

    _nest(trace, by_thread)
    _link(trace)


def _ranks(trace: GatheredTrace) -> Ints:
    """The threads that call or are in a frame, in order."""
    chunks = chain(trace.calls.chunks(), trace.frames.chunks())
    return np.array(sorted({tid for chunk in chunks for tid in np.unique(chunk["tid"]).tolist()}), np.int64)


def _start(trace: GatheredTrace) -> int:
    return min(int(chunk["begin"].min()) for chunk in chain(trace.calls.chunks(), trace.frames.chunks()))


# -- calls in calls, and in operators --------------------------------------------------------------------


class _Tree:
    """Stacks as paths from the outermost frame: each node is a frame within another."""

    def __init__(self) -> None:
        self.parent, self.name, self.kind = [0], [_UNNAMED], [0]
        self._known: dict[tuple[int, int], int] = {}
        self.used: set[int] = set()

    def within(self, parent: int, name: int, kind: int) -> int:
        """Return the node of a frame within another; the same for the same path."""
        node = self._known.get((parent, name))
        if node is None:
            if len(self.parent) >= _MOST_NODES:
                return parent
            node = self._known[parent, name] = len(self.parent)
            self.parent.append(parent)
            self.name.append(name)
            self.kind.append(kind)
        return node


def _nest(trace: GatheredTrace, key: Key) -> None:
    """Find the stack of each call, and its outermost call."""
    splitters = (
        trace.calls.splitters(key) if len(trace.calls) > len(trace.frames) else trace.frames.splitters(key)
    )
    calls, tree = Spool(CALL_COLUMNS, trace.folder, ("pid", "tid")), _Tree()
    sweep = _Sweep(tree)
    frames = trace.frames.parts(key, splitters, then="end")
    for part in trace.calls.parts(key, splitters, then="end"):
        calls.extend(sweep.part(part, next(frames)))
    trace.calls.close()
    trace.frames.close()
    trace.calls = calls
    texts, own = list(trace.texts), not any(FRAME_KINDS[kind] == PYTHON for kind in tree.kind[1:])
    for node in sorted(tree.used):
        rows: list[tuple[str, int, str]] = []
        at = node
        while at and len(rows) < _DEEPEST:
            rows.append(frame_of(texts[tree.name[at]], tree.kind[at], own=own))
            at = tree.parent[at]
        trace.stacks[FIRST_STACK * node] = rows


class _Sweep:
    """Visits calls and frames of one thread after another, in the order of their begins."""

    def __init__(self, tree: _Tree) -> None:
        self._tree = tree
        self._thread = -1
        self._open: list[tuple[int, int]] = []  # (end, node) of frames
        # of the current outermost call
        self._reach, self._outer, self._around = _NEVER, -1, -1

    def part(self, calls: Rows, frames: Rows) -> Rows:
        """Return the calls of a part with their links; both tables are in order."""
        columns = [frames[name].tolist() for name in ("tid", "begin", "end", "name", "kind")]
        ahead = zip(*columns, strict=True)
        following = next(ahead, None)
        changed = {
            name: calls[name].tolist() for name in ("stack", "nested", "outer", "around", "correlation")
        }
        stack, nested, outer, around, correlation = changed.values()
        rows = zip(*(calls[name].tolist() for name in ("tid", "begin", "end", "name")), strict=True)
        outermost = -1  # row of an outermost call without correlation, which gets that of an inner call
        for row, (tid, begin, end, name) in enumerate(rows):
            while following is not None and following[:2] <= (tid, begin):
                self._frame(*following)
                following = next(ahead, None)
            self._turn(tid)
            if (node := self._node(begin)) and stack[row] < FIRST_STACK:
                stack[row] = FIRST_STACK * node
                self._tree.used.add(node)
            if end <= self._reach:
                nested[row] = 1
                if outermost >= 0 and correlation[row] >= 0:
                    correlation[outermost], outermost = correlation[row], -1
            else:
                self._outer, self._around, self._reach = begin, name, end
                outermost = row if correlation[row] < 0 else -1
            outer[row], around[row] = self._outer, self._around
        while following is not None:
            self._frame(*following)
            following = next(ahead, None)
        done: Rows = calls.copy()
        for name, values in changed.items():
            done[name] = values
        return done

    def _turn(self, tid: int) -> None:
        if tid != self._thread:
            self._thread = tid
            self._open.clear()
            self._reach, self._outer, self._around = _NEVER, -1, -1

    def _frame(self, tid: int, begin: int, end: int, name: int, kind: int) -> None:
        self._turn(tid)
        node = self._node(begin)
        self._open.append((end, self._tree.within(node, name, kind)))

    def _node(self, at: int) -> int:
        """The innermost frame that is open at a moment."""
        held = self._open
        while held and held[-1][0] <= at:
            held.pop()
        return held[-1][1] if held else 0


# -- GPU work and its calls -----------------------------------------------------------


def _by_correlation(rows: Rows) -> Ints:
    """Rows without correlation get distinct keys, so that none equals another."""
    number = rows["correlation"]
    return np.where(number >= 0, number, -1 - (rows["begin"] & ((1 << 40) - 1)))


def _link(trace: GatheredTrace) -> None:
    """Link each GPU row to its call, and copy its facts to the call."""
    if not len(trace.work):
        return
    larger = trace.work if len(trace.work) > len(trace.calls) else trace.calls
    splitters = larger.splitters(_by_correlation)
    calls = Spool(CALL_COLUMNS, trace.folder, ("pid", "tid"))
    waits, collectives = trace.text(WAIT), _collectives(trace)
    parts = trace.work.parts(_by_correlation, splitters)
    for part in trace.calls.parts(_by_correlation, splitters):
        rows, made = next(parts).copy(), part.copy()
        keys, wanted = _by_correlation(made), _by_correlation(rows)
        _fill_calls(made, keys, rows, wanted, waits)
        found = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        known = (
            (rows["correlation"] >= 0) & (keys[found] == wanted) if len(keys) else np.zeros(len(rows), bool)
        )
        caller = made[found[known]]
        for name, value in (("call_begin", "outer"), ("call_tid", "tid"), ("pid", "pid")):
            rows[name][known] = caller[value]
        around = _wrapped(trace, made, rows, found, known, collectives) if len(collectives) else made[:0]
        calls.extend(made)
        calls.extend(around)
        activities = np.zeros(np.count_nonzero(rows["what"]), trace.activities.dtype)
        for name in ACTIVITY_COLUMNS:
            activities[name] = rows[name][rows["what"] > 0]
        trace.activities.extend(activities)
    trace.calls.close()
    trace.work.close()
    trace.calls = calls


def _fill_calls(calls: Rows, keys: Ints, rows: Rows, wanted: Ints, waits: int) -> None:
    """Set stream, size, direction and shape of calls from their first work, and the event of a wait."""
    for mine, names in (
        (rows["what"] != waits, ("stream", "bytes", "direction", "shape")),
        (rows["what"] == waits, ("stream",)),
    ):
        chosen, numbers = rows[mine], wanted[mine]
        if not len(chosen):
            continue
        place = np.minimum(np.searchsorted(numbers, keys), len(chosen) - 1)
        hit = (numbers[place] == keys) & (calls["correlation"] >= 0)
        matched = chosen[place]
        for name in names:
            none = -1 if name == "stream" else 0
            fresh = hit & (calls[name] <= none) & (matched[name] > none)
            calls[name][fresh] = matched[name][fresh]
        event = hit & (matched["event"] >= 0)
        calls["aux"][event] = matched["event"][event]


def _collectives(trace: GatheredTrace) -> Ints:
    """Texts that name an NCCL kernel, with its function, as two columns."""
    named = [(number, collective_of(text)) for text, number in list(trace.texts.items()) if "nccl" in text]
    return np.array([(number, trace.function(name)) for number, name in named if name], np.int64).reshape(
        -1, 2
    )


def _wrapped(
    trace: GatheredTrace, calls: Rows, rows: Rows, found: Ints, known: Any, collectives: Ints
) -> Rows:
    """NCCL calls around launches of NCCL kernels, where the trace has none."""
    place = np.minimum(np.searchsorted(collectives[:, 0], rows["name"]), len(collectives) - 1)
    mine = np.flatnonzero(known & (collectives[place, 0] == rows["name"]))
    launch = found[mine]
    names = np.array([name.startswith("nccl") for name in trace.functions], np.bool_)
    alone = (calls["nested"][launch] == 0) & ~names[calls["around"][launch]]
    mine, launch = mine[alone], launch[alone]
    launch, first = np.unique(launch, return_index=True)
    mine = mine[first]
    made: Rows = calls[launch].copy()
    made["name"] = made["around"] = collectives[place[mine], 1]
    group = rows["group"][mine]
    made["bytes"], made["aux"] = 0, np.where(group > 0, group, trace.whole_job)
    calls["nested"][launch] = 1
    return made
