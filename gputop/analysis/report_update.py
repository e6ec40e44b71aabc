"""Figures by time columns of 50 ms: a newer analysis of a column replaces the older one.

Full and light analyses fill the same columns, so sums over ten seconds are as new as the last light one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gputop.analysis.answer.picture import ASSUMED, COLUMN_NS, PRESUMED, WHOLE, Lanes
from gputop.analysis.answer.report import Account, Finding, Level, Range, Report, least_sure
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.causes.cause import family_table
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.evidence.columns import Ints, intersect, subtract
from gputop.analysis.findings.diagnosis import NO_REQUESTS_ROWS, class_of
from gputop.analysis.findings.findings import LEAST_FINDING_NS, LEAST_SHARE, finding_of
from gputop.analysis.findings.gap_findings import LEAST_GAPS, causes_of_short
from gputop.analysis.lanes import Grid
from gputop.analysis.ledger import Entry, Ledger, entry_of, report_of
from gputop.analysis.ledger import Key as EntryKey
from gputop.analysis.proofs.nvml_witness import witness

KEPT = 512  # columns: 25 s, more than an explanation covers
_MOST_KEYS = 600  # then figures that are 0 are dropped


class Row(IntEnum):
    """The figures of a GPU, ns; of a cause the first three, and ``GAPS``."""

    PROVED = 0
    ASSUMED = 1  # proved but for an assumption
    ESTIMATED = 2
    PENDING = 3  # work was proved outstanding
    OPEN = 4  # neither; its idle part is estimated
    UNESTIMATED = 5  # neither, and not estimated yet
    SPAN = 6
    GAPS = 7  # number of gaps that began there


class OfGpu(NamedTuple):
    """A figure of a GPU, by its name."""

    label: str
    row: Row


class OfCause(NamedTuple):
    """A figure of a cause in a process: the catalogue's row (-1: not explained), the process."""

    cause: int
    pid: int
    row: Row


Key = OfGpu | OfCause


@dataclass(frozen=True, slots=True)
class Counted:
    """Consecutive columns: the figures that are not 0, with a number for each column."""

    first: int
    columns: int
    figures: dict[Key, Ints]

    def sums(self) -> dict[Key, int]:
        """The sum over all columns."""
        return {key: int(column.sum()) for key, column in self.figures.items()}


def count(scene: AttributionContext, cause: Ints, *, light: bool) -> Counted:
    """Return the figures of an analysis.

    Args:
        scene: The analysis.
        cause: The catalogue's row of each segment's cause, -1 for none.
        light: True if estimation was skipped.
    """
    low, high = scene.analysis.gpu.stretch
    first = low // COLUMN_NS
    grid = Grid(first, max(-(-high // COLUMN_NS) - first, 0))
    figures: dict[Key, Ints] = {}
    for key, begin, end in (*_of_gpus(scene, light), *_of_causes(scene, cause)):
        ns = grid.time(1, np.zeros(len(begin), np.int64), begin, end)[0]
        if ns.any():
            figures[key] = figures[key] + ns if key in figures else ns
    figures.update(_gap_counts(scene, cause, grid))
    return Counted(first, grid.columns, figures)


def _of_gpus(scene: AttributionContext, light: bool) -> Iterator[tuple[Key, Ints, Ints]]:
    gpu, gaps = scene.analysis.gpu, scene.gaps
    for span in gpu.spans:
        label = gpu.devices.labels[span.device]
        mine = gaps.device == span.device
        certain = mine & ~gaps.estimated
        for row, chosen in (
            (Row.PROVED, certain & gaps.proved),
            (Row.ASSUMED, certain & ~gaps.proved),
            (Row.ESTIMATED, mine & gaps.estimated),
        ):
            yield OfGpu(label, row), gaps.begin[chosen], gaps.end[chosen]
        whole = np.array([span.begin]), np.array([span.end])
        gone = gaps.begin[certain], gaps.end[certain]
        yield OfGpu(label, Row.PENDING), *subtract(intersect(gpu.pending(span.device), whole), gone)
        yield OfGpu(label, Row.UNESTIMATED if light else Row.OPEN), *gpu.unknown[span.device]
        yield OfGpu(label, Row.SPAN), *whole
    for one in scene.analysis.estimates:
        label = gpu.devices.labels[one.device]
        yield OfGpu(label, Row.ESTIMATED), one.small.begin, one.small.end
        yield OfGpu(label, Row.ESTIMATED), *one.ended


def _of_causes(scene: AttributionContext, cause: Ints) -> Iterator[tuple[Key, Ints, Ints]]:
    segments, gaps = scene.segments, scene.gaps
    pids = scene.evidence.threads.pid[gaps.thread[segments.gap]] if len(gaps) else segments.gap
    row = np.where(gaps.proved[segments.gap], int(Row.PROVED), int(Row.ASSUMED))
    row = np.where(scene.estimated, int(Row.ESTIMATED), row)
    yield from _split(cause, pids, row, segments.begin, segments.end)
    for one in scene.analysis.estimates:
        small = one.small
        owner, pid = causes_of_short(scene, cause, small), scene.evidence.threads.pid[small.thread]
        row = np.full(len(owner), int(Row.ESTIMATED))
        yield from _split(owner, pid, row, small.begin, small.end)


def _split(cause: Ints, pid: Ints, row: Ints, begin: Ints, end: Ints) -> Iterator[tuple[Key, Ints, Ints]]:
    mixed = ((np.asarray(cause, np.int64) + 1) << 40) | (np.asarray(pid, np.int64) << 4) | row
    for one in np.unique(mixed).tolist():
        chosen = mixed == one
        key = OfCause((one >> 40) - 1, (one >> 4) & 0xFFFFFFFFF, Row(one & 15))
        yield key, begin[chosen], end[chosen]


def _gap_counts(scene: AttributionContext, cause: Ints, grid: Grid) -> dict[Key, Ints]:
    """The number of gaps of each cause that began in each column."""
    gaps, found = scene.gaps, dict[Key, Ints]()
    if not len(gaps) or not grid.columns:
        return found
    # each (gap, cause) once: pieces of a gap lie side by side, those of a cause in it mostly do
    mixed = scene.segments.gap.astype(np.int64) << 8 | (cause + 1)
    mixed = np.unique(mixed[cause >= 0])
    gap, number = mixed >> 8, (mixed & 255) - 1
    pids = scene.evidence.threads.pid[gaps.thread[gap]].astype(np.int64)
    column = np.clip(gaps.begin[gap] // COLUMN_NS - grid.first, 0, grid.columns - 1)
    which = pids << 8 | number
    for one in np.unique(which).tolist():
        counts = np.bincount(column[which == one], minlength=grid.columns)
        found[OfCause(one & 255, one >> 8, Row.GAPS)] = counts.astype(np.int64)
    return found


class ColumnSums:
    """The newest ``KEPT`` columns of every figure."""

    def __init__(self) -> None:
        self._figures: dict[Key, Ints] = {}
        self._number = np.full(KEPT, -1, np.int64)  # the column that each place holds

    def put(self, counted: Counted) -> None:
        """Replace the values of some columns."""
        skipped = max(counted.columns - KEPT, 0)
        numbers = np.arange(counted.first + skipped, counted.first + counted.columns)
        places = numbers % KEPT
        self._number[places] = numbers
        for column in self._figures.values():
            column[places] = 0
        for key, ns in counted.figures.items():
            self._figures.setdefault(key, np.zeros(KEPT, np.int64))[places] = ns[skipped:]
        if len(self._figures) > _MOST_KEYS:
            self._figures = {key: column for key, column in self._figures.items() if column.any()}

    def sums(self, first: int, end: int) -> dict[Key, int]:
        """Return each figure that is not 0, summed over the columns from the first up to the end."""
        within = (self._number >= first) & (self._number < end)
        found = ((key, int(column[within].sum())) for key, column in self._figures.items())
        return {key: total for key, total in found if total}


# The update of a report: new figures, the texts of the last full explanation.

LEFT = 0.5  # of the least loss: below it a finding is gone, so that one at the limit does not come and go
JUDGED = 0.5  # a loss of which less was there at the full explanation is new
APART = 0.05  # of the time: NVML contradicts the report beyond this and NVML's own error


@dataclass(frozen=True)
class Before:
    """The last full explanation: report, ledger, and the column sums of both."""

    report: Report
    ledger: Ledger
    sums: Mapping[Key, int]
    new: dict[tuple[int, int], Finding] = field(default_factory=dict)  # found by light analyses since

    @cached_property
    def guessed(self) -> dict[tuple[int, int], float]:
        """The share of each (cause, process) in the estimated idle time."""
        found: dict[tuple[int, int], float] = {}
        for key, ns in self.sums.items():
            if isinstance(key, OfCause) and key.row is Row.ESTIMATED:
                found[key.cause, key.pid] = found.get((key.cause, key.pid), 0.0) + ns
        total = sum(found.values())
        return {cause: ns / total for cause, ns in found.items()} if total else {}

    def idle_share(self, label: str) -> float | None:
        """The idle share of a GPU's time without a proof, None where unknown."""
        account = self.account(label)
        if account is None or account.source is None:
            return None
        open_ns = self.sums.get(OfGpu(label, Row.OPEN), 0)
        return min(self.sums.get(OfGpu(label, Row.ESTIMATED), 0) / open_ns, 1.0) if open_ns else 0.0

    def account(self, label: str) -> Account | None:
        """A GPU's account, by its name."""
        return next((gpu.account for gpu in self.report.gpus if gpu.label == label), None)

    def presumed(self, counted: Counted, lanes: Lanes) -> Lanes:
        """Return the lanes of a light analysis, its open time divided as in the full explanation."""
        table = family_table()
        made = []
        for lane in lanes.gpus:
            share = self.idle_share(lane.label)
            unestimated = counted.figures.get(OfGpu(lane.label, Row.UNESTIMATED))
            if share is None or unestimated is None:
                made.append(lane)
                continue
            parts = unestimated[: lanes.columns] * WHOLE / COLUMN_NS
            shares = lane.shares.astype(np.float64)
            shares[PRESUMED] += (1 - share) * parts
            for (cause, _pid), part in self.guessed.items():
                shares[ASSUMED + table[cause]] += share * part * parts
            made.append(replace(lane, shares=np.clip(shares, 0, WHOLE).astype(np.uint8)))
        return replace(lanes, gpus=tuple(made))


@dataclass(frozen=True, slots=True)
class Now:
    """The present: the sums of the last seconds, the newest light analysis, and the stretch of the sums."""

    sums: Mapping[Key, int]
    scene: AttributionContext
    owner: Ints
    stretch: tuple[int, int]

    def of_gpu(self, label: str, row: Row) -> int:
        """A figure of a GPU, ns."""
        return self.sums.get(OfGpu(label, row), 0)

    @property
    def labels(self) -> list[str]:
        """The GPUs with a span."""
        return sorted({key.label for key in self.sums if isinstance(key, OfGpu) and key.row is Row.SPAN})

    @property
    def causes(self) -> list[tuple[int, int]]:
        """(row of the catalogue, process) of every cause with a figure."""
        return sorted({(key.cause, key.pid) for key in self.sums if isinstance(key, OfCause)})

    def certain(self, cause: tuple[int, int]) -> int:
        """The time of a cause in gaps that need no estimate, ns."""
        return sum(self.sums.get(OfCause(*cause, row), 0) for row in (Row.PROVED, Row.ASSUMED))


def renewed(before: Before, now: Now) -> tuple[Report, bool]:
    """Return (the updated report, whether new records contradict the report before)."""
    found = {label: _account(before, now, label) for label in now.labels}
    accounts = {label: account for label, (account, _apart) in found.items()}
    losses = _losses(before, now, [*accounts.values()])
    ledger = replace(
        before.ledger,
        begin_ns=now.stretch[0],
        end_ns=now.stretch[1],
        accounts=accounts,
        seen=dict.fromkeys(accounts, now.stretch[1] - now.stretch[0]),
        entries=_entries(before, _findings(before, now, [*accounts.values()])),
        unexplained_ns=int(sum(ns for (cause, _pid), ns in losses.items() if cause < 0)),
        no_requests_ns=sum(ns for (cause, _pid), ns in losses.items() if cause in NO_REQUESTS_ROWS),
        lost_events=now.scene.evidence.lost_events,
    )
    report = _of_its_steps(report_of(ledger), _steps_left(before, [*accounts.values()]))
    was, now_is = (one.diagnosis.kind if one.diagnosis else None for one in (before.report, report))
    apart = any(apart for _account, apart in found.values())
    return report, apart or (was is not now_is and report.span_ns > 0)


def _steps_left(before: Before, accounts: list[Account]) -> int | None:
    """The number of the known steps in a window that has become shorter; None in one that has not."""
    steps, span = before.report.steps, sum(one.span_ns for one in accounts)
    if steps is None or span >= before.report.span_ns:
        return None
    return max(steps.count * span // before.report.span_ns, 1)


def _of_its_steps(report: Report, count: int | None) -> Report:
    if count is None or report.steps is None:
        return report
    return replace(report, steps=replace(report.steps, count=count))


def _entries(before: Before, findings: list[Finding]) -> dict[EntryKey, Entry]:
    """The entries of before with the findings of now; an entry without a finding counts as small gaps."""
    entries = {
        key: replace(entry, example=None, settled=False) for key, entry in before.ledger.entries.items()
    }
    for one in findings:
        key = one.cause, one.kind, one.pid
        known = entries.get(key)
        entries[key] = replace(known, example=one, settled=True) if known else entry_of(one, class_of(one))
    return entries


def _account(before: Before, now: Now, label: str) -> tuple[Account, bool]:
    """(a GPU's updated account, whether NVML contradicts it)."""
    known, share = before.account(label), before.idle_share(label)
    span, pending = now.of_gpu(label, Row.SPAN), now.of_gpu(label, Row.PENDING)
    proved, assumed = now.of_gpu(label, Row.PROVED), now.of_gpu(label, Row.ASSUMED)
    unestimated = now.of_gpu(label, Row.UNESTIMATED)
    open_ns = now.of_gpu(label, Row.OPEN) + unestimated
    outside = max(span - proved - assumed - pending - open_ns, 0)
    upper = span - pending
    if known is not None and not known.proved_ns and before.sums.get(OfGpu(label, Row.PROVED), 0):
        proved, assumed = 0, proved + assumed  # shared with unwatched processes: nothing is proved
    bounds = Range(proved, upper)
    if known is None or share is None:
        parts = (proved, assumed, pending, open_ns + outside)
        account = Account(span, *parts, outside, None, None, known.agrees if known else True, None, bounds)
        return account, False
    guessed = min(now.of_gpu(label, Row.ESTIMATED) + int(share * unestimated), open_ns)
    error = int((known.error_ns or 0) * span / max(known.span_ns, 1))
    seen, apart = _seen(known, now, label, 1 - (proved + assumed + guessed + outside) / max(span, 1))
    if apart:
        guessed = int(min(max(span * (1 - seen) - proved - assumed - outside, 0), open_ns))
        error += int(APART * span)
    account = Account(
        span_ns=span,
        proved_ns=proved,
        estimated_ns=assumed + guessed + outside,
        busy_ns=span - proved - assumed - guessed - outside,
        unknown_ns=0,
        outside_ns=outside,
        error_ns=min(error, open_ns),
        source="nvml" if apart else known.source,
        agrees=known.agrees,
        seen_busy=known.seen_busy,
        bounds=bounds,
    )
    return account, apart


def _seen(account: Account, now: Now, label: str, busy: float) -> tuple[float, bool]:
    """(the GPU's busy share by NVML, whether it contradicts the reported one)."""
    devices = now.scene.analysis.gpu.devices
    if label not in devices.labels or account.seen_busy is None:
        return busy, False
    reading = witness(now.scene.evidence, devices.index[devices.labels.index(label)], *now.stretch)
    if reading is None:
        return busy, False
    # NVML counts kernels, not copies
    beside = account.busy_ns / max(account.span_ns, 1) - account.seen_busy
    seen = min(max(reading.busy + beside, 0.0), 1.0)
    return seen, abs(seen - busy) > APART + reading.error


def _losses(before: Before, now: Now, accounts: list[Account]) -> dict[tuple[int, int], float]:
    """The idle time of each (cause, process), ns."""
    losses = {
        cause: float(now.certain(cause) + now.sums.get(OfCause(*cause, Row.ESTIMATED), 0))
        for cause in now.causes
    }
    estimated = sum(ns for key, ns in now.sums.items() if isinstance(key, OfGpu) and key.row is Row.ESTIMATED)
    certain = sum(now.of_gpu(label, row) for label in now.labels for row in (Row.PROVED, Row.ASSUMED))
    guessed = sum(one.proved_ns + one.estimated_ns - one.outside_ns for one in accounts if one.source)
    more = max(guessed - certain - estimated, 0) if guessed else 0
    for cause, share in before.guessed.items():
        losses[cause] = losses.get(cause, 0.0) + share * more
    return losses


def _findings(before: Before, now: Now, accounts: list[Account]) -> list[Finding]:
    """The findings of before with their losses of now, and new ones; without those that are gone."""
    losses = _losses(before, now, accounts)
    were = _losses(before, replace(now, sums=before.sums), [gpu.account for gpu in before.report.gpus])
    least = max(LEAST_SHARE * max((one.span_ns for one in accounts), default=0), LEAST_FINDING_NS)
    # the window may have become shorter: the loss of a step scales with it
    longer = before.report.span_ns / max(sum(one.span_ns for one in accounts), 1)
    most = sum(one.bounds.upper for one in accounts)
    rows = {cause.number: row for row, cause in enumerate(CATALOGUE)}
    findings = []
    for one in _with_gains_of(before, accounts):
        key = (rows.get(one.cause, -1), one.pid)
        if one.kind != "idle" or not were.get(key):
            # a loss of a shorter stretch cannot be more than of the longer one
            findings.append(_scaled(one, 1 / longer, longer) if longer > 1 else one)
        elif losses.get(key, 0.0) >= LEFT * least:
            findings.append(capped(_scaled(one, losses[key] / were[key], longer), most))
    known = {(rows.get(one.cause, -1), one.pid) for one in findings}
    for key in now.causes:
        gaps = now.sums.get(OfCause(*key, Row.GAPS), 0)
        fault = key[0] >= 0 and CATALOGUE[key[0]].fault
        new = were.get(key, 0.0) < JUDGED * losses[key] and gaps >= LEAST_GAPS
        is_new = key not in known and fault and new and now.certain(key) >= least
        found = (before.new.get(key) or _new(now, key)) if is_new else None
        if found is not None:
            before.new[key] = found
            findings.append(_measured(found, now, key, int(losses[key])))
    return findings


def _with_gains_of(before: Before, accounts: list[Account]) -> Iterator[Finding]:
    """The findings of before, with the gains of so many steps as a shorter window has."""
    count, known, span = _steps_left(before, accounts), before.report.steps, before.report.span_ns
    for one in before.report.findings:
        times = sum(account.span_ns for account in accounts) / max(span, 1)
        if known is not None and count is not None and known.pid == one.pid:
            times = count / known.count  # of a step it stays the same
        gain = one.gain
        if times < 1:
            gain = replace(gain, ns=int(gain.ns * times), work_ns=int(gain.work_ns * times))
        yield replace(one, gain=gain)


def _scaled(finding: Finding, times: float, longer: float) -> Finding:
    loss = finding.loss
    estimate = None if loss.estimate is None else int(loss.estimate * times)
    per_step = None if finding.per_step_ns is None else int(finding.per_step_ns * times * longer)
    changed = Range(int(loss.lower * times), int(loss.upper * times), estimate)
    return replace(finding, loss=changed, per_step_ns=per_step)


def capped(finding: Finding, most_ns: int) -> Finding:
    """Return a finding with a loss of at most so much, all the time that a GPU can have been idle."""
    loss = finding.loss
    estimate = None if loss.estimate is None else min(loss.estimate, most_ns)
    return replace(finding, loss=Range(min(loss.lower, most_ns), min(loss.upper, most_ns), estimate))


def _new(now: Now, key: tuple[int, int]) -> Finding | None:
    """The finding of a new cause, from the newest light analysis."""
    scene, (number, pid) = now.scene, key
    if not len(scene.gaps):
        return None
    mine = (now.owner == number) & (scene.evidence.threads.pid[scene.gaps.thread[scene.segments.gap]] == pid)
    return finding_of(scene, CATALOGUE[number], mine) if mine.any() else None


def _measured(finding: Finding, now: Now, key: tuple[int, int], loss_ns: int) -> Finding:
    """A finding with its loss of now."""
    sure = now.sums.get(OfCause(*key, Row.PROVED), 0)
    level = finding.idle_level
    if sure < 0.5 * loss_ns and level is Level.PROVED:
        level = Level.STRONG
    return replace(
        finding,
        level=least_sure(level, finding.name_level),
        idle_level=level,
        loss=Range(min(now.certain(key), loss_ns), loss_ns),
        gaps=now.sums.get(OfCause(*key, Row.GAPS), 0),
    )
