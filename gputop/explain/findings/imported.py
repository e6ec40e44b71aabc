"""What the rows of an imported trace say by themselves, and what they cannot say: sentences with figures.

Such a trace may hold no streams, not every call, or no states of threads. What follows here rests on rows
that are in it, each on its own or side by side; nothing is concluded from what is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from gputop.engine.kernel_names import short_names
from gputop.explain.chains.scene import Scene
from gputop.explain.chains.traced_words import places
from gputop.explain.evidence.activity import OFF_CPU, OVERHEAD
from gputop.explain.evidence.evidence import Column, Evidence
from gputop.explain.evidence.ranges import Ints, intersect, length, union
from gputop.explain.proofs.kernels import KernelTime
from gputop.format import format_bytes, format_count, format_ns, format_percent
from probes.activities import Table

_SLOW_NS: Final = 1_000_000  # a call is worth a word from here on
_OUTLIER: Final = 10.0  # times what the others of its function usually take
_LARGE: Final = 1 << 20  # bytes: smaller copies take as long as a call does
_FEW: Final = 5
_SAME: Final = 0.8  # rank correlation of size and duration from which on one grows with the other
_SHOWN: Final = 4
_PART: Final = 0.02  # of the idle time, to be worth a word


def told_by_rows(scene: Scene) -> list[str]:
    """Sentences about an imported trace; none about a recording of gputop's own."""
    evidence = scene.evidence
    if evidence.header.get("source", "gputop") == "gputop":
        return []
    return [
        *_kernels(evidence),
        *_in_gaps(scene),
        *_unlinked(scene),
        *_first_calls(evidence),
        *_copies(evidence),
        *_off_cpu(evidence),
        *_reads(evidence),
        *_only_totals(evidence),
        *(str(note) for note in evidence.facts.notes()),
    ]


def _kernels(evidence: Evidence) -> Iterator[str]:
    """What the GPU ran, where the trace holds it."""
    rows = evidence.activities.of("kernel")
    if not len(rows):
        return
    spent = np.bincount(rows["name"], weights=rows["end"] - rows["begin"])
    whole = float(spent.sum())
    best = np.argsort(-spent, kind="stable")[:_SHOWN]
    names = [evidence.activities.texts[name] for name in np.flatnonzero(spent).tolist()]
    short = dict(zip(names, short_names(names), strict=True))
    parts = [
        f"{short[evidence.activities.texts[name]]} {format_percent(100 * spent[name] / whole)} %"
        for name in best.tolist()
        if spent[name] > 0
    ]
    yield f"{format_count(len(rows))} kernels ran for {format_ns(whole)}: {', '.join(parts)}"


def _in_gaps(scene: Scene) -> Iterator[str]:
    """What the submitting threads were in while the GPU was idle: innermost operators, and calls."""
    evidence, gaps = scene.evidence, scene.gaps
    idle = int((gaps.end - gaps.begin).sum())
    found = places(scene, np.arange(scene.size))
    inside = np.flatnonzero(scene.segments.call >= 0)
    ops = evidence.calls["op"][scene.segments.call[inside]]
    spent = np.bincount(ops, weights=scene.ns[inside])
    found |= {evidence.apis.name(op): int(spent[op]) for op in np.flatnonzero(spent).tolist()}
    for what, words in ((OFF_CPU, OFF_CPU), (OVERHEAD, "the profiler's own work")):
        rows = evidence.activities.of(what)
        for thread in np.unique(gaps.thread).tolist() if len(rows) else ():
            mine = gaps.thread == thread
            own = rows[np.isin(rows["tid"], [evidence.threads.tid[thread], -1])]
            shared = intersect(union(*_times(own)), union(gaps.begin[mine], gaps.end[mine]))
            found[words] = found.get(words, 0) + length(*shared)
    parts = [
        f"{name} {format_percent(100 * ns / idle)} %"
        for name, ns in sorted(found.items(), key=lambda one: -one[1])[:_SHOWN]
        if ns > 0.02 * idle
    ]
    if parts:
        yield f"while the GPU was idle, the threads that gave it work were in: {', '.join(parts)}"


def _unlinked(scene: Scene) -> Iterator[str]:
    """Idle time that nobody can be asked for, beside some that has its launches."""
    gpu = scene.analysis.gpu
    if not isinstance(gpu, KernelTime):
        return
    ns, idle = sum(length(*one) for one in gpu.unlinked.values()), sum(one.empty_ns for one in gpu.spans)
    if _PART * idle < ns < idle:
        yield (
            f"for {format_ns(ns)} of the idle time ({format_percent(100 * ns / idle)} %) why is not in the "
            "file: the launches of what ended it are missing"
        )


def _first_calls(evidence: Evidence) -> Iterator[str]:
    """A slow call that is the first of its function, which loads code and data, and no other is as slow."""
    calls = evidence.calls
    duration = (calls["end"] - calls["begin"]).astype(np.int64)
    for op in np.unique(calls["op"]).tolist():
        rows = np.flatnonzero(calls["op"] == op)
        rows = rows[np.argsort(calls["begin"][rows], kind="stable")]
        if len(rows) < _FEW:
            continue
        first, others = int(duration[rows[0]]), float(np.median(duration[rows[1:]]))
        if first >= _SLOW_NS and first >= _OUTLIER * others and first == int(duration[rows].max()):
            most = int(duration[rows[1:]].max())
            yield (
                f"the one {format_ns(first)} {evidence.apis.name(op)} is the first of its function: the "
                f"{len(rows) - 1} after it have a median of {format_ns(others)} and take at most "
                f"{format_ns(most)}"
            )


def _copies(evidence: Evidence) -> Iterator[str]:
    """Whether copies are slow because they are large."""
    calls = evidence.calls
    for op in np.unique(calls["op"][calls["bytes"] > 0]).tolist():
        rows = np.flatnonzero((calls["op"] == op) & (calls["bytes"] > 0) & (calls["direction"] > 0))
        size, ns = calls["bytes"][rows], (calls["end"] - calls["begin"])[rows]
        large = size >= _LARGE
        if len(rows) < _FEW or not large.any() or int(ns[large].max()) < _SLOW_NS:
            continue
        alike = _rank_correlation(size, ns)
        rate = size[large] / np.maximum(ns[large], 1)
        if alike >= _SAME:
            least, most = (format_bytes(int(end)) for end in (size[large].min(), size[large].max()))
            yield (
                f"{evidence.apis.name(op)}: {int(large.sum())} of {len(rows)} copies moved {least} to {most} "
                f"at {rate.min():.1f} to {rate.max():.1f} GB/s; their time grows with their size"
            )
        else:
            yield (
                f"{evidence.apis.name(op)}: the time of its {len(rows)} copies does not grow with their size "
                f"(rank correlation {alike:.2f})"
            )


def _rank_correlation(one: Column, other: Column) -> float:
    """Spearman's: 1 where the larger is always the longer."""
    ranks = [_ranks(values) for values in (one, other)]
    spread = [float(np.std(values)) for values in ranks]
    if min(spread) == 0:
        return 0.0
    centred = [values - values.mean() for values in ranks]
    return float((centred[0] * centred[1]).mean() / (spread[0] * spread[1]))


def _ranks(values: Column) -> Column:
    """Equal values have the mean of their places."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    ranks: Column = (ends - (count - 1) / 2.0)[place.reshape(-1)]
    return ranks


def _off_cpu(evidence: Evidence) -> Iterator[str]:
    """How much of the slow calls their threads were really off the CPU."""
    stays = evidence.activities.of(OFF_CPU)
    totals = _totals(evidence)
    if not len(stays) and not totals:
        return
    calls = evidence.calls
    duration = calls["end"] - calls["begin"]
    for op in np.unique(calls["op"][duration >= _SLOW_NS]).tolist():
        slow = np.flatnonzero((calls["op"] == op) & (duration >= _SLOW_NS))
        away = 0
        touched = 0
        for row in slow.tolist():
            own = stays[stays["tid"] == calls["tid"][row]]
            inside = length(*intersect(union(*_times(own)), (calls["begin"][[row]], calls["end"][[row]])))
            away, touched = away + inside, touched + (inside > 0)
        whole = int(duration[slow].sum())
        many = f"{len(slow)} slow calls" if len(slow) > 1 else "slow call"
        sentence = (
            f"in its {many} of {evidence.apis.name(op)}, {format_ns(whole)} in all, the thread was off the "
            f"CPU for {format_ns(away) if away else '0'} ({format_percent(100 * away / whole)} %)"
        )
        if touched:
            sentence += f", in {touched} of them"
        pids = set(calls["pid"][slow].tolist())
        if not all(_stored(totals, pid) for pid in pids):
            sentence += ", as far as the switches are stored, which is not all of them"
        yield sentence


def _reads(evidence: Evidence) -> Iterator[str]:
    """Stays off the CPU during which a process's own block reads were under way."""
    stays, reads = evidence.activities.of(OFF_CPU), evidence.activities.of("block_read")
    for pid in np.unique(reads["pid"]).tolist():
        own, away = reads[reads["pid"] == pid], stays[stays["pid"] == pid]
        whole = length(*union(*_times(away)))
        shared = length(*intersect(union(*_times(own)), union(*_times(away))))
        if not whole:
            continue
        moved = int(np.maximum(own["bytes"], 0).sum())
        size = f" of {format_bytes(moved)}" if moved else ""
        yield (
            f"{_who(evidence, pid)} was off the CPU for {format_ns(whole)} in {len(away)} stays; for "
            f"{format_percent(100 * shared / whole)} % of it its own block reads were under way "
            f"({len(own)} reads{size})"
        )


def _only_totals(evidence: Evidence) -> Iterator[str]:
    """What exists without its moments."""
    rows = [row for row in _totals(evidence) if row["what"] == OFF_CPU and row["stored"] < row["count"]]
    if rows:
        count, ns = (sum(int(row[key]) for row in rows) for key in ("count", "ns"))
        most = sorted(rows, key=lambda row: -int(row["ns"]))[:_SHOWN]
        who = ", ".join(f"{row['process'] or 'process'} ({row['pid']})" for row in most)
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        yield (
            f"the {format_count(count)} switches of {who}{more} exist only as totals ({format_ns(ns)} off "
            "the CPU): neither when they were nor what they waited for is known, so nothing is blamed on them"
        )
    calls = [row for row in _totals(evidence) if row["calls"]]
    stored, whole = (sum(int(row[key]) for row in calls) for key in ("stored", "count"))
    if stored < whole:
        yield f"{whole - stored} of {whole} calls were counted and not stored: what they did is not known"


def _totals(evidence: Evidence) -> list[Mapping[str, Any]]:
    rows = evidence.header.get("totals", ())
    return [row for row in rows if isinstance(row, Mapping)]


def _stored(totals: list[Mapping[str, Any]], pid: int) -> bool:
    """Whether all switches of a process are in the file."""
    rows = [row for row in totals if row["pid"] == pid and row["what"] == OFF_CPU]
    return all(row["stored"] == row["count"] for row in rows)


def _times(rows: Table) -> tuple[Ints, Ints]:
    return rows["begin"].astype(np.int64), rows["end"].astype(np.int64)


def _who(evidence: Evidence, pid: int) -> str:
    return f"{evidence.facts.process_name(pid) or 'process'} ({pid})"
