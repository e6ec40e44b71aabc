"""The grounds of a finding and against others, in words; the calls and the line that it blames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from gputop.analysis.answer.kernel_report import delay_text
from gputop.analysis.answer.report import DiagnosisKind
from gputop.analysis.causes.cause import MOST, Cause, CauseMatch, ends_of, main_lengths
from gputop.analysis.causes.drains import source_of
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.thread_places import (
    end_line,
    hot_line,
    in_words,
    line_in,
    line_shares,
    places,
    range_words,
    waiting_line,
)
from gputop.analysis.evidence.api_classes import OFF_CPU, OPERATOR, OVERHEAD
from gputop.analysis.evidence.columns import Ints, intersect, length, union
from gputop.analysis.evidence.evidence import Column, Evidence
from gputop.analysis.findings.exact_work import exact_work
from gputop.analysis.proofs.gaps import KernelTime
from gputop.engine.calls.stack_table import Line
from gputop.format import format_bytes, format_count, format_ns, format_percent
from probes.activities import Table

_PART, _NAMED = 0.1, 4  # of a loss, for a line to be named; how many at most
_LINE = 0.2  # of a loss, for the line of a finding
EVENLY, RARE = 0.5, 0.1  # a loss of which so much lies in gaps of fewer than so many a step: not of each step


def line_of(cause: Cause, claim: CauseMatch) -> Line | None:
    """Return the line of the call that is blamed, or of the work or wait that delays the next one."""
    scene, rows, line = claim.scene, np.flatnonzero(claim.segments), None
    if scene.analysis.traced is not None and scene.evidence.header.get("source", "gputop") != "gputop":
        return line_in(scene, rows)  # of an imported file, whose calls have no stacks
    if (named := cause.at(claim)) is not None:
        return named
    if cause.culprit == "refilled_by" and (hot := hot_line(scene, rows)) is not None:
        line = hot.line
    if cause.culprit == "end":
        line = end_line(scene, ends_of(claim))
    if cause.culprit == "waiter" or (cause.culprit == "end" and line is None):
        line = waiting_line(scene, rows, scene.gaps.thread[scene.segments.gap[rows]])
    shares = _lines(cause, claim)
    return line or (shares[0][0] if shares and shares[0][1] >= _LINE else None)


def _lines(cause: Cause, claim: CauseMatch) -> list[tuple[Line, float]]:
    """Return the lines of the calls that are blamed, with their parts of the loss, most first."""
    scene, calls = claim.scene, blamed(cause, claim)
    inside = cause.culprit == "inside"
    cost = scene.ns[claim.segments] if inside else scene.gap_ns(claim.segments)[claim.gaps]
    known = calls >= 0
    return line_shares(scene.evidence, scene.evidence.calls["stack"][calls[known]], cost[known])


_FAR = 2  # times the median


def blamed(cause: Cause, claim: CauseMatch) -> Ints:
    """Return the calls that the cause blames; -1 where a gap has none."""
    scene, gaps = claim.scene, claim.gaps
    if cause.culprit == "refilled_by":
        return scene.gaps.refilled_by[gaps]
    if cause.culprit == "inside":
        return scene.segments.call[claim.segments]
    if cause.overlaps:  # a gap that goes back to an earlier wait has nothing to do with the call before it
        source = source_of(scene)[gaps]
        gaps = np.where(source >= 0, source, gaps)
    return scene.gaps.drained_by[gaps]


def grounds_of(cause: Cause, claim: CauseMatch, per_gap: Ints, short_ns: int) -> tuple[str, ...]:
    """Return the evidence of a finding."""
    return (
        *_gaps_text(claim, per_gap, short_ns),
        *_at_lines(cause, claim),
        *_within(claim),
        *_waited_for(claim),
        *_queue_delay(cause, claim),
        *cause.evidence(claim),
    )


def _gaps_text(claim: CauseMatch, per_gap: Ints, short_ns: int) -> tuple[str, ...]:
    most = main_lengths(per_gap)
    lengths = f"median {format_ns(float(np.median(most)))}, longest {format_ns(int(most[0]))}"
    few = len(most) < len(per_gap)
    whole, apart = claim.ns + short_ns, short_ns > _PART * (claim.ns + short_ns)
    part = f"the {format_ns(claim.ns)} in the longest gaps" if apart else "it"
    facts = [
        f"{len(most)} of {len(per_gap)} gaps account for {100 * MOST:.0f} % of {part}: {lengths}"
        if few
        else f"{len(most)} gaps: {lengths}"
    ]
    steps = claim.steps
    if steps is not None and steps.count:
        # a mean that is far from the median is typical of none of them
        length = f" of {format_ns(steps.usual_ns)}" if steps.usual_ns <= _FAR * steps.median_ns else ""
        each = f"{length}, {format_ns(whole / steps.count)} lost in each"
        typical = even(np.sort(per_gap)[::-1], steps.count)
        facts.append(
            f"{len(most) / steps.count:.1f} {'of these gaps per' if few else 'times a'} step; {steps.count} "
            f"steps{each if typical else f', {format_ns(whole)} lost in all'}"
        )
    if apart:
        facts.append(f"the other {format_ns(short_ns)} lie in shorter gaps, which are summed up")
    return tuple(facts)


def even(longest_first: Ints, steps: int) -> bool:
    """Return True if a loss by step is typical of a step: few gaps of fewer steps are not most of it."""
    most = int(np.searchsorted(np.cumsum(longest_first), EVENLY * longest_first.sum())) + 1
    return most >= RARE * steps


def _within(claim: CauseMatch) -> tuple[str, ...]:
    """Return the operators of an imported file around it, and the ranges that the program names."""
    scene, rows = claim.scene, np.flatnonzero(claim.segments)
    operators = in_words(scene, rows) if len(scene.evidence.activities.of(OPERATOR)) else ""
    return tuple(f"the thread was {place}" for place in (operators, range_words(scene, rows)) if place)


def _queue_delay(cause: Cause, claim: CauseMatch) -> tuple[str, ...]:
    """Return whether the host is ahead of the GPU, by the GPU's own clock, for causes that blame launches."""
    if cause.kind is not DiagnosisKind.LAUNCH:
        return ()
    text = delay_text(exact_work(claim.scene, frozenset({claim.pid})).kernels)
    return (text,) if text else ()


def _at_lines(cause: Cause, claim: CauseMatch) -> tuple[str, ...]:
    """Return the lines of a loss, where there are several."""
    parts = [(line, part) for line, part in _lines(cause, claim) if part >= _PART][:_NAMED]
    if len(parts) < 2:
        return ()
    return ("at " + ", ".join(f"{line.text()} {100 * part:.0f} %" for line, part in parts),)


def _waited_for(claim: CauseMatch) -> tuple[str, ...]:
    """Return the files, sockets and pipes in whose system calls most of a loss was spent."""
    scene, rows = claim.scene, np.flatnonzero(claim.segments & claim.scene.does(State.BLOCKED))
    rows = rows[scene.segments.slice[rows] >= 0]
    if not len(rows):
        return ()
    names = scene.evidence.files
    what = scene.evidence.slices["file"][scene.segments.slice[rows]]
    ns = np.bincount(what, weights=scene.ns[rows], minlength=len(names))
    parts = [(int(one), ns[one] / claim.ns) for one in np.argsort(-ns, kind="stable")[:_NAMED]]
    texts = [
        f"{names[one].replace(':', ' ', 1)} {100 * part:.0f} %"
        for one, part in parts
        if one and part >= _PART
    ]
    return ("waited for " + ", ".join(texts),) if texts else ()


def ruled_out(claim: CauseMatch) -> tuple[str, ...]:
    """Return what else these gaps hold, of the usual suspects."""
    scene = claim.scene
    if scene.unrecorded.any():  # such a file has no waits of threads
        return ()
    wanted = np.zeros(len(scene.gaps), np.bool_)
    wanted[claim.gaps] = True
    here = wanted[scene.segments.gap] & ~claim.segments
    total = int((scene.gaps.end - scene.gaps.begin)[claim.gaps].sum())
    texts = []
    for what, chosen in (
        ("waiting for a CPU", scene.own & (scene.segments.state == State.QUEUED)),
        ("waiting for other threads", ~scene.own),
        ("blocked in the kernel", scene.own & (scene.segments.state == State.BLOCKED)),
    ):
        if not (claim.segments & chosen).any():
            part = int(scene.ns[here & chosen].sum())
            texts.append(f"{what}: {format_ns(part) if part else '0'} of {format_ns(total)}")
    return tuple(texts)


# Sentences about an imported trace: its figures, and its limits.

_SLOW_NS: Final = 1_000_000  # a call is worth mentioning from here on
_OUTLIER: Final = 10.0  # times the median of its function
_LARGE: Final = 1 << 20  # bytes: smaller copies take as long as a call does
_FEW: Final = 5
_SAME: Final = 0.8  # rank correlation of size and duration from which on one grows with the other
_SHOWN: Final = 4
_IMPORTED_PART: Final = 0.02  # of the idle time, to be worth mentioning


def trace_notes(scene: AttributionContext) -> list[str]:
    """Return sentences about an imported trace; none about a recording of gputop's own."""
    evidence = scene.evidence
    if evidence.header.get("source", "gputop") == "gputop":
        return []
    return [
        *_in_gaps(scene),
        *_unlinked(scene),
        *_first_calls(evidence),
        *_copies(evidence),
        *_off_cpu(evidence),
        *_reads(evidence),
        *_only_totals(evidence),
        *(str(note) for note in evidence.facts.notes()),
    ]


def _in_gaps(scene: AttributionContext) -> Iterator[str]:
    """Yield where the submitting threads were while the GPU was idle: innermost operators, and calls."""
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
        yield f"while the GPU was idle, the threads that submit its work were in: {', '.join(parts)}"


def _unlinked(scene: AttributionContext) -> Iterator[str]:
    """Yield idle time without launches in the file, beside some with launches."""
    gpu = scene.analysis.gpu
    if not isinstance(gpu, KernelTime):
        return
    ns, idle = sum(length(*one) for one in gpu.unlinked.values()), sum(one.empty_ns for one in gpu.spans)
    if _IMPORTED_PART * idle < ns < idle:
        yield (
            f"for {format_ns(ns)} of the idle time ({format_percent(100 * ns / idle)} %) the reason is not "
            "in the file: the launches that ended it are missing"
        )


def _first_calls(evidence: Evidence) -> Iterator[str]:
    """Yield slow calls that are the first of their function, which loads code and data, and the slowest."""
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
    """Yield whether copies are slow because they are large."""
    calls = evidence.calls
    for op in np.unique(calls["op"][calls["bytes"] > 0]).tolist():
        rows = np.flatnonzero((calls["op"] == op) & (calls["bytes"] > 0) & (calls["direction"] > 0))
        size, ns = calls["bytes"][rows], (calls["end"] - calls["begin"])[rows]
        large = size >= _LARGE
        if len(rows) < _FEW or not large.any() or int(ns[large].max()) < _SLOW_NS:
            continue
        alike = _rank_correlation(size, ns)
        if alike >= _SAME:
            rate = size[large] / np.maximum(ns[large], 1)
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
    """Return Spearman's: 1 where the larger is always the longer."""
    ranks = _ranks(one), _ranks(other)
    return float(np.corrcoef(*ranks)[0, 1]) if all(values.any() for values in map(np.diff, ranks)) else 0.0


def _ranks(values: Column) -> Column:
    """Return the ranks; equal values have their mean."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    return (ends - (count - 1) / 2.0)[place.reshape(-1)]


def _off_cpu(evidence: Evidence) -> Iterator[str]:
    """Yield how much of the slow calls their threads were really off the CPU."""
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
    """Yield the time off the CPU in which a process's own block reads were under way."""
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
            f"{evidence.facts.process_title(pid)} was off the CPU for {format_ns(whole)} in {len(away)} "
            f"stays; for {format_percent(100 * shared / whole)} % of it its own block reads were under way "
            f"({len(own)} reads{size})"
        )


def _only_totals(evidence: Evidence) -> Iterator[str]:
    """Yield what the file has without its moments."""
    rows = [row for row in _totals(evidence) if row["what"] == OFF_CPU and row["stored"] < row["count"]]
    if rows:
        count, ns = (sum(int(row[key]) for row in rows) for key in ("count", "ns"))
        most = sorted(rows, key=lambda row: -int(row["ns"]))[:_SHOWN]
        who = ", ".join(f"{row['process'] or 'process'} ({row['pid']})" for row in most)
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        yield (
            f"the {format_count(count)} switches of {who}{more} exist only as totals ({format_ns(ns)} off "
            "the CPU): their times and reasons are not known, so no cause blames them"
        )
    calls = [row for row in _totals(evidence) if row["calls"]]
    stored, whole = (sum(int(row[key]) for row in calls) for key in ("stored", "count"))
    if stored < whole:
        yield f"{whole - stored} of {whole} calls were counted and not stored: nothing else is known of them"


def _totals(evidence: Evidence) -> list[Mapping[str, Any]]:
    rows = evidence.header.get("totals", ())
    return [row for row in rows if isinstance(row, Mapping)]


def _stored(totals: list[Mapping[str, Any]], pid: int) -> bool:
    """Return True if all switches of a process are in the file."""
    rows = [row for row in totals if row["pid"] == pid and row["what"] == OFF_CPU]
    return all(row["stored"] == row["count"] for row in rows)


def _times(rows: Table) -> tuple[Ints, Ints]:
    return rows["begin"].astype(np.int64), rows["end"].astype(np.int64)
