"""What the rows of a trace say of each GPU: how long it was idle, what the host did then; by loops."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from tests.reality.raw import Call, Named, Raw, Work

LATE_NS = 20_000  # a launch reaches an idle GPU within this time
LONG_NS = 1_000_000
_READS = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "cudaMemcpy")
_LOADS = re.compile(r"DataLoader.*__next__|dataloader|data_loader|load_batch|next_batch", re.IGNORECASE)
_AROUND = re.compile(r"ProfilerStep#|PyTorch Profiler|ProfilerStep\*")
_COLLECTIVE = re.compile(r"nccl|rccl|allreduce|all_reduce|AllGather|ReduceScatter|nvshmem", re.IGNORECASE)


@dataclass(slots=True)
class GpuTruth:
    """One GPU. ``why``: ns of its idle time by what the host did; ``runs``: ns of work by its kind."""

    gpu: int
    span_ns: int
    idle_ns: int
    why: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    where: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    runs: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def idle(self) -> float:
        """As a share."""
        return self.idle_ns / self.span_ns if self.span_ns else 0.0


def truth(raw: Raw) -> list[GpuTruth]:
    """Of each GPU that ran anything."""
    found = []
    calls = {
        call.link: call for call in sorted(raw.calls, key=lambda one: -one.begin) if call.link is not None
    }
    nests = _nested(raw.ranges)
    by_thread: dict[object, list[Call]] = defaultdict(list)
    for call in sorted(raw.calls, key=lambda one: one.begin):
        by_thread[call.thread].append(call)
    for gpu in sorted({one.gpu for one in raw.work}):
        rows = sorted((one for one in raw.work if one.gpu == gpu), key=lambda one: (one.begin, one.end))
        reach, busy, gaps = rows[0].begin, 0, []
        for row in rows:
            if row.begin > reach:
                gaps.append((reach, row))
            busy += max(row.end - max(row.begin, reach), 0)
            reach = max(reach, row.end)
        span = reach - rows[0].begin
        made = GpuTruth(gpu, span, span - busy)
        for row in rows:
            made.runs[_kind(row)] += row.end - row.begin
        for begin, row in gaps:
            _explain(made, begin, row, calls.get(row.link), nests, by_thread)
        found.append(made)
    return found


def _kind(row: Work) -> str:
    if row.what in ("copy", "fill"):
        return "copies"
    return "communication" if _COLLECTIVE.search(row.name) else "kernels"


def _nested(ranges: list[Named]) -> dict[object, tuple[list[int], list[list[Named]]]]:
    """Of each thread: moments, and what is open from each on, outermost first."""
    found = {}
    threads: dict[object, list[Named]] = defaultdict(list)
    for one in ranges:
        threads[one.thread].append(one)
    for thread, rows in threads.items():
        edges = sorted({one.begin for one in rows} | {one.end for one in rows})
        rows.sort(key=lambda one: (one.begin, -one.end))
        opened: list[list[Named]] = []
        current: list[Named] = []
        place = 0
        for edge in edges:
            current = [one for one in current if one.end > edge]
            while place < len(rows) and rows[place].begin <= edge:
                if rows[place].end > edge:
                    current = [*current, rows[place]]
                place += 1
            opened.append(current)
        found[thread] = (edges, opened)
    return found


def _explain(
    made: GpuTruth,
    begin: int,
    row: Work,
    call: Call | None,
    nests: dict[object, tuple[list[int], list[list[Named]]]],
    by_thread: dict[object, list[Call]],
) -> None:
    """Adds one gap, from ``begin`` to the work that ends it."""
    end = row.begin
    if call is None:
        made.why["no launch in the file"] += end - begin
        return
    if call.end <= begin:
        made.why["launched already"] += end - begin
        return
    late = max(end - max(call.end, begin) - LATE_NS, 0)
    made.why["launched already"] += late
    end -= late
    mine = by_thread[call.thread]
    place = bisect_right([one.begin for one in mine], begin) if len(mine) < 2000 else _place(mine, begin)
    inside = [one for one in mine[max(place - 1, 0) :][:400] if one.begin < end and one.end > begin]
    at = begin
    cuts = []
    for one in inside:
        if one.begin > at:
            cuts.append((at, min(one.begin, end), None))
        if min(one.end, end) > max(one.begin, at):
            cuts.append((max(one.begin, at), min(one.end, end), one))
        at = max(at, min(one.end, end))
    if at < end:
        cuts.append((at, end, None))
    # a call that copies and is not back when the GPU runs dry waited for that copy
    waits = (one for one in inside if one is not call and (_waits(one.name) or "emcpy" in one.name))
    waited = any(one.begin <= begin < one.end for one in waits)
    edges, opened = nests.get(call.thread, ([], []))
    for low, high, one in cuts:
        names = _open(edges, opened, low, high)
        inner = next((name for name in reversed(names) if not _AROUND.match(name)), "")
        made.where[inner or (one.name if one else "")] += high - low
        made.why[_why(one, call, names, waited=waited, ns=end - begin)] += high - low


def _place(calls: list[Call], moment: int) -> int:
    low, high = 0, len(calls)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if calls[middle].begin <= moment else (low, middle)
    return low


def _waits(name: str) -> bool:
    return "Synchronize" in name or name in ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream")


def _open(edges: list[int], opened: list[list[Named]], low: int, high: int) -> list[str]:
    """What is open in the middle, outermost first."""
    place = bisect_right(edges, (low + high) // 2) - 1
    return [one.name for one in opened[place] if not one.python] if place >= 0 else []


def _why(one: Call | None, gives: Call, names: list[str], *, waited: bool, ns: int) -> str:
    if any(_LOADS.search(name) for name in names):
        return "input"
    if one is not None and one is not gives:
        name = one.name.removeprefix("cuda").removeprefix("cu").removeprefix("hip")
        if "Malloc" in name or "Free" in name or "HostAlloc" in name or "Register" in name:
            return "memory calls"
        if "Module" in name or "Library" in name or "Graph" in name:
            return "code and graphs"
        if _waits(one.name):
            return "waits"
    if one is gives and one.end - one.begin >= LONG_NS and "emcpy" not in one.name:
        return "code and graphs"
    if any(name in _READS for name in names):
        return "waits"
    if waited:
        return "after a wait"
    return "between launches" if ns < LONG_NS else "host work"
