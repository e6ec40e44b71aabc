"""The explanation as data, which ``gputop explain`` prints, ``diff`` compares and the screen shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Final, Literal

from gputop.analysis.answer.kernel_report import ExactReport, GraphReport, KernelReport, LaunchedKernel
from gputop.analysis.answer.memory_report import MemoryReport
from gputop.analysis.answer.picture import RankReport, RankTimes
from gputop.analysis.chains.analysis import Analysis
from gputop.analysis.evidence.power import Energy, EnergyFigures
from gputop.analysis.proofs.gaps import DeviceTime
from gputop.documents.additive import ALL, SUM, added_up
from gputop.documents.fields import FLAT, HIDDEN, RARE, Mark, marked
from gputop.documents.shared_schema import LostEventsJson, one_of
from gputop.engine.calls.failed_calls import Failure
from gputop.engine.calls.stack_table import Line
from gputop.errors import AccountingError
from gputop.format import format_ns

SCHEMA: Final = "gputop.explain/1"


class Level(str, Enum):
    """The certainty of a statement."""

    PROVED = "proved"  # follows from the recorded events and from CUDA's documented rules
    STRONG = "strong"  # one assumption holds as far as the data show
    HINT = "hint"  # fits, but something else could fit too

    __str__ = str.__str__


def least_sure(*levels: Level) -> Level:
    """Return the least sure of some levels."""
    return max(levels, key=list(Level).index)


@dataclass(frozen=True, slots=True)
class Range:
    """A duration between two bounds, in ns, with an estimate where there is one."""

    lower: int
    upper: int
    estimate: int | None = None

    @property
    def middle(self) -> float:
        """The value that findings are ranked by."""
        return (self.lower + self.upper) / 2 if self.estimate is None else float(self.estimate)

    def __add__(self, other: Range) -> Range:
        """Return the sum; where only one has an estimate, the other's middle is added to it."""
        lower, upper = self.lower + other.lower, self.upper + other.upper
        if self.estimate is None and other.estimate is None:
            return Range(lower, upper)
        return Range(lower, upper, int(self.middle + other.middle))


Source = Annotated[str, one_of("nvml", "learned", "both", "several")]


@dataclass(frozen=True, slots=True)
class IdleSpan:
    """A GPU's idle time, and the source of its estimate."""

    time: Annotated[Range, FLAT]
    source: Source | None


Layer = Literal["gpu", "cuda", "host", "system"]
LossKind = Literal["idle", "waste"]  # the GPU had nothing to do; time inside calls that costs the host


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a chain, from the GPU down to the cause.

    Attributes:
        ns: Its time.
        events: The number of its records.
        line: The line of most of its time; None: not known.
        role: Of its thread: ``submitter``, ``loader``, ``pinning``, ``autograd``, ``thread``, ``child``,
            ``process``, or ``unknown``; "" for a link without a thread.
    """

    layer: Layer
    pid: int
    tid: int
    text: str
    ns: int
    events: int
    line: Line | None = None
    role: str = ""


MAX_GAIN: Final = Mark("max_gain_ns")


@dataclass(frozen=True, slots=True)
class Gain:
    """The most that a change can save.

    Attributes:
        ns: The saving, after the changes of the findings before it.
        because: The reason if that is more than the loss, or less than without those changes; else "".
        work_ns: Work of the GPU that goes as well: no more than this and the idle time can be saved.
    """

    ns: Annotated[int, MAX_GAIN]
    because: Annotated[str, Mark("gain_because")] = ""
    work_ns: Annotated[int, HIDDEN] = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One loss that repeats.

    Attributes:
        kind: ``idle`` (the GPU had nothing to do) or ``waste`` (time inside calls that costs the host).
        level: The lesser of ``idle_level`` and ``name_level``.
        loss: Its cost.
        api: The call to change.
        evidence: Sentences with their figures.
        ruled_out: Other causes, with the figures against them.
        moments_ns: The worst moments, ns since the start of the recording; of a proved loss, proved ones.
        gaps: The number of its gaps.
        per_step_ns: ``loss.lower`` per step, None without steps.
        line: Of the thread at the end of the chain, or of the call to change; None: not known.
        idle_level: The certainty of the loss.
        name_level: The certainty of its cause.
        gpu_shares: (NVML's index, share of the loss) of each GPU that it is on, as far as known.
    """

    cause: str
    kind: LossKind
    title: str
    level: Level
    loss: Annotated[Range, Mark("loss_ns")]
    pid: int
    tid: int
    api: str
    chain: tuple[Link, ...]
    evidence: tuple[str, ...]
    ruled_out: tuple[str, ...]
    advice: tuple[str, ...]
    gain: Annotated[Gain, FLAT]
    moments_ns: tuple[int, ...]
    gaps: int
    per_step_ns: int | None
    line: Line | None = None
    idle_level: Level = Level.PROVED
    name_level: Level = Level.PROVED
    gpu_shares: Annotated[tuple[tuple[int, float], ...], HIDDEN] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The time of a step before and after a cause is fixed, ns; those listed before it are fixed already.

    Attributes:
        least_ns: The least that may be left: more than the cause's own time may go with it.
    """

    cause: str
    before_ns: Annotated[int, Mark("step_before_ns")]
    after_ns: Annotated[int, Mark("step_after_ns")]
    least_ns: Annotated[int, Mark("step_least_ns")]


@dataclass(frozen=True, slots=True)
class Event:
    """A long gap that did not repeat; ``time_ns`` is since the start of the recording.

    ``ns`` is an estimate where ``level`` is not ``proved``.
    """

    time_ns: int
    ns: int
    cause: str
    level: Level
    title: str
    pid: int
    chain: tuple[Link, ...]
    line: Line | None = None

    def text(self) -> str:
        """Return ``1.4s (proved) at 2.031 s, process 7: first use: imports modules at train.py:12``."""
        at = f" at {self.line.brief}" if self.line is not None else ""
        size = f"{format_ns(self.ns)} ({self.level})"
        return f"{size} at {self.time_ns / 1e9:.3f} s, process {self.pid}: {self.title}{at}"


@dataclass(frozen=True, slots=True)
class StormCost:
    """A thread that is switched very often, and the GPU time that this cost."""

    pid: int
    tid: int
    name: str
    switches: int
    switches_per_second: float
    gpu_ns: int


@dataclass(frozen=True, slots=True)
class Account:
    """One GPU's span as parts that add up to it, ns.

    Attributes:
        span_ns: The whole.
        proved_ns: Provably idle.
        estimated_ns: Presumably idle: estimated, proved but for one assumption, and start-up.
        busy_ns: Certainly or presumably at work.
        unknown_ns: Neither idle nor busy by any source.
        outside_ns: Start-up, end and first uses within the span; they are among the others.
        error_ns: The error of the estimate; None without one.
        source: The source of the estimate: ``nvml``, ``learned``, ``both``; None without one.
        agrees: False where these disagree.
        seen_busy: The share of the span in which a kernel ran by NVML; None: not known.
        bounds: The proved bounds of the idle time.
    """

    span_ns: Annotated[int, SUM, HIDDEN]
    proved_ns: Annotated[int, SUM, Mark("proved_idle")]
    estimated_ns: Annotated[int, SUM, Mark("estimated_idle")]
    busy_ns: Annotated[int, SUM, Mark("busy")]
    unknown_ns: Annotated[int, SUM, Mark("unknown")]
    outside_ns: Annotated[int, SUM, HIDDEN]
    error_ns: Annotated[int | None, HIDDEN]
    source: Annotated[Source | None, HIDDEN]
    agrees: Annotated[bool, ALL, HIDDEN]
    seen_busy: Annotated[float | None, HIDDEN]
    bounds: Annotated[Range, SUM, HIDDEN]

    @property
    def idle(self) -> Range:
        """The idle time: its bounds, and the estimate where there is one or nothing is left to estimate."""
        known = self.source is not None or not self.unknown_ns
        estimate = self.proved_ns + self.estimated_ns if known else None
        return Range(self.bounds.lower, self.bounds.upper, estimate)


@dataclass(frozen=True, slots=True)
class GpuSpan:
    """One GPU: the time from its first work to the last moment at which its state is known."""

    label: str
    span_ns: int
    idle: Annotated[Range, HIDDEN]
    account: Annotated[Account, Mark("account_ns")]

    @property
    @marked(Mark("idle_ns"))
    def idle_time(self) -> IdleSpan:
        """The idle time, and the source of its estimate."""
        return IdleSpan(self.idle, self.account.source)

    @property
    @marked(Mark())
    def error_ns(self) -> int | None:
        """The error of the estimate."""
        return self.account.error_ns

    @property
    @marked(Mark())
    def sources_agree(self) -> bool:
        """True if the sources of the estimate agree."""
        return self.account.agrees


class DiagnosisKind(str, Enum):
    """The classes of trouble, as ``class`` in JSON has them."""

    INPUT = "input"
    SYNC = "sync"
    LAUNCH = "launch"
    HOST = "host"
    COPY = "copy"
    COMPUTE = "compute"
    MEMORY = "memory"
    COMMUNICATION = "communication"
    CPU = "cpu"
    SHARED = "shared"
    NO_REQUESTS = "no-requests"
    QUEUE = "queue"  # work was there and did not start
    STARTUP = "startup"  # contexts, code and memory, for the first time

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The class of trouble.

    Attributes:
        kind: The class; None for a busy GPU of which no more is known.
        title: The class in the field's words.
        level: Its certainty.
        evidence: Sentences with their figures.
        advice: Changes, where no finding has any.
        lead: The place of its largest finding among the findings; None for a class without.
        line: Of a class without findings: where the thread at the end of the chain waits or sleeps.
    """

    kind: Annotated[DiagnosisKind | None, Mark("class")]
    title: str
    level: Level
    evidence: tuple[str, ...]
    advice: tuple[str, ...]
    lead: Annotated[int | None, HIDDEN] = None
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class LongStep:
    """The begin of a step, since the start of the recording, and its length."""

    time_ns: int
    ns: int


@dataclass(frozen=True, slots=True)
class LongSteps:
    """Steps so uneven that their mean is typical of none.

    Attributes:
        total_ns: Of all steps.
        count, ns: Number and time of those that are far longer than the others.
        longest: The longest ones.
    """

    total_ns: int
    count: int
    ns: int
    longest: tuple[LongStep, ...]


@dataclass(frozen=True, slots=True)
class Growth:
    """Steps that get longer from the begin of a loop to its end.

    Attributes:
        count: Number of steps.
        first_ns, last_ns: The means of the first quarter and of the last one.
        part_ns: The growth of the part that grows most.
        part: The name of that part.
        launches: The change of the number of launches, in words.
        line: Of the part; None: not known.
    """

    count: Annotated[int, HIDDEN]
    first_ns: int
    last_ns: int
    part_ns: int
    part: str
    launches: Annotated[str, HIDDEN]
    line: Line | None

    @property
    @marked(Mark("text"))
    def sentence(self) -> str:
        """The growth in words."""
        return self.text()

    def text(self) -> str:
        """Return ``its steps grow from 1.1ms to 4.6ms (first, last quarter of 2400): 3.4ms of that is …``."""
        at = f" at {self.line.text()}" if self.line is not None else ""
        return (
            f"its steps grow from {format_ns(self.first_ns)} to {format_ns(self.last_ns)} (first, last "
            f"quarter of {self.count}): {format_ns(self.part_ns)} of that is {self.part}{at}; "
            f"{self.launches} a step"
        )


@dataclass(frozen=True, slots=True)
class OneOff:
    """Idle time that is no loss of a loop: its reason, its sum, how often."""

    what: str
    ns: int
    count: int

    def text(self) -> str:
        """Return ``a pause at main.py:12, 2.1s (3 times)``."""
        return f"{self.what}, {format_ns(self.ns)}{f' ({self.count} times)' if self.count > 1 else ''}"


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The steps; ``long`` where their mean is typical of none, ``growth`` where they get longer.

    The program's own step may be ``together`` of them, where only their times tell them apart.
    """

    count: int
    median_ns: int
    usual_ns: int
    pid: int
    tid: int
    long: LongSteps | None = None
    growth: Growth | None = None
    together: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """The explanation of a recording or a stretch of it.

    Attributes:
        span_ns: Time in which idleness counts, all GPUs together.
        cpu_waits: (process, GPU idle time in which one of its threads wanted a CPU and had none).
        small_ns: Explained gaps that are too small or too few for a finding.
        unexplained_ns: Proved idle time without a cause.
        unknown_ns: Gaps that are not counted because a record is missing in them.
        what_if: The step without the first finding, without the first two, and so on.
        coverage: False when NVML contradicts the proofs: then some work is invisible.
        notes: Limits of the figures.
        failures: Calls that failed, since the start of the recording.
        memory: Memory held at the end; None where the recording lacks it.
        kernels: Launches by kernel; None where no kernel has a name.
        graphs: CUDA graphs, and launches that would fit one; None without any.
        ranks: The arrivals of ranks on this machine at collectives; None without ranks.
        energy: Of GPUs and processes; None without samples of power.
    """

    start_ns: int
    duration_ns: int
    verdict: str
    diagnosis: Diagnosis | None
    idle: Annotated[Range, HIDDEN]
    span_ns: int
    gpus: tuple[GpuSpan, ...]
    steps: StepFacts | None
    outside_ns: int
    events: tuple[Event, ...]
    findings: tuple[Finding, ...]
    what_if: tuple[WhatIf, ...]
    storms: tuple[StormCost, ...]
    cpu_waits: Annotated[tuple[tuple[int, int], ...], HIDDEN]
    small_ns: int
    unexplained_ns: int
    unknown_ns: int
    coverage: bool
    lost_events: Annotated[int, HIDDEN]
    notes: tuple[str, ...]
    failures: Annotated[tuple[Failure, ...], RARE] = ()
    memory: Annotated[MemoryReport | None, RARE] = None
    kernels: Annotated[KernelReport | None, HIDDEN] = None
    exact: Annotated[ExactReport | None, RARE] = None
    graphs: Annotated[GraphReport | None, RARE] = None
    ranks: Annotated[RankReport | None, HIDDEN] = None
    energy: Annotated[Energy | None, HIDDEN] = None

    @property
    def lost_share(self) -> float:
        """The part of the span that idle findings take, 0 to 1."""
        lost = sum(finding.loss.lower for finding in self.findings if finding.kind == "idle")
        return lost / self.span_ns if self.span_ns else 0.0

    # -- keys of the document that are made of fields ------------------------------------------------

    @property
    @marked(Mark())
    def schema(self) -> Literal["gputop.explain/1"]:
        """The schema of the document."""
        return SCHEMA

    @property
    @marked(Mark("class"))
    def kind(self) -> DiagnosisKind | None:
        """The class of trouble."""
        return self.diagnosis.kind if self.diagnosis is not None else None

    @property
    @marked(Mark("gpu_idle_ns"))
    def idle_time(self) -> IdleSpan:
        """The idle time; one word for the source where all GPUs have the same."""
        sources = {gpu.account.source for gpu in self.gpus if gpu.account.source is not None}
        return IdleSpan(self.idle, sources.pop() if len(sources) == 1 else ("several" if sources else None))

    @property
    @marked(Mark())
    def lost(self) -> LostEventsJson:
        """Records that are missing."""
        return {"events": self.lost_events}

    @property
    @marked(Mark("ranks", rare=True))
    def rank_times(self) -> tuple[RankTimes, ...] | None:
        """The ranks; the one that is last most often comes first."""
        return self.ranks.ranks if self.ranks is not None else None

    @property
    @marked(Mark("kernels", rare=True))
    def launched_kernels(self) -> tuple[LaunchedKernel, ...] | None:
        """The launches by kernel."""
        return self.kernels.launched() if self.kernels is not None else None

    @property
    @marked(Mark("energy", rare=True))
    def energy_figures(self) -> EnergyFigures | None:
        """The energy of GPUs, processes and a step, and the most that each fix saves."""
        from gputop.analysis.answer.wording import energy_figures

        return energy_figures(self, self.energy) if self.energy is not None else None


# One GPU's span as parts that add up to it: proved idle, estimated idle, busy, unknown.


def account(analysis: Analysis, device: DeviceTime, *, shared: bool) -> Account:
    """Return the parts of one GPU's span.

    Raises:
        AccountingError: They do not add up to it.
    """
    gaps = analysis.gaps
    # gaps that rest on an assumption are no proof, and still no work was known then
    assumed = (gaps.device == device.device) & ~gaps.proved & ~gaps.estimated
    assumed_ns = int((gaps.end - gaps.begin)[assumed].sum())
    open_ns = device.unknown_ns - assumed_ns
    # the GPU waits while a process starts and code is loaded, presumably
    estimate = next((one for one in analysis.estimates if one.device == device.device), None)
    begun = device.outside_ns
    ended = estimate.ended_ns if estimate is not None else 0
    guessed = estimate.idle_ns if estimate is not None else 0
    proved_ns = device.empty_ns
    busy_ns = device.pending_ns + (open_ns - guessed - ended if estimate is not None else 0)
    if shared and estimate is not None and estimate.busy_share is not None:
        # others may have worked while the watched processes submitted nothing
        idle_ns = assumed_ns + guessed + begun + ended + proved_ns
        others = max(idle_ns - int(device.span_ns * (1 - estimate.busy_share)), 0)
        busy_ns += others
        assumed_ns, proved_ns = assumed_ns + proved_ns - others, 0
    made = Account(
        span_ns=device.span_ns,
        proved_ns=proved_ns,
        estimated_ns=assumed_ns + guessed + (begun + ended if estimate is not None else 0),
        busy_ns=busy_ns,
        unknown_ns=0 if estimate is not None else open_ns + begun,
        outside_ns=begun + ended,
        error_ns=estimate.error_ns if estimate is not None else None,
        source=estimate.source if estimate is not None else None,
        agrees=estimate.agrees if estimate is not None else True,
        seen_busy=estimate.busy_share if estimate is not None else None,
        bounds=Range(proved_ns, device.empty_ns + device.unknown_ns + begun),
    )
    parts = (made.proved_ns, made.estimated_ns, made.busy_ns, made.unknown_ns)
    if sum(parts) != device.span_ns or min(parts) < 0:
        raise AccountingError(f"the parts of a GPU's time, {parts}, do not add up to {device.span_ns} ns")
    return made


def whole(accounts: Sequence[Account]) -> Range:
    """Return the idle time of all GPUs together, with an estimate where each of them has one."""
    lower, upper = (sum(getattr(one.bounds, end) for one in accounts) for end in ("lower", "upper"))
    if not accounts or any(one.idle.estimate is None for one in accounts):
        return Range(lower, upper)
    return Range(lower, upper, sum(one.proved_ns + one.estimated_ns for one in accounts))


def joined(one: Account, other: Account) -> Account:
    """Return the sum of two parts' accounts, with the longer part's source of estimates."""
    seen = [(part.seen_busy, part.span_ns) for part in (one, other) if part.seen_busy is not None]
    weight = sum(ns for _share, ns in seen)
    errors = [part.error_ns for part in (one, other) if part.error_ns is not None]
    first, second = (one, other) if one.span_ns >= other.span_ns else (other, one)
    return replace(
        added_up(one, other),
        error_ns=sum(errors) if errors else None,
        source=first.source or second.source,
        seen_busy=sum((share or 0.0) * ns for share, ns in seen) / weight if weight else None,
    )


def settled(account: Account) -> Account:
    """Return the account with unknown time as idle as the rest, and all of it as its error.

    Where most of the time is unknown nothing is estimated.
    """
    if account.source is None or not account.unknown_ns:
        return account
    known_ns = account.span_ns - account.unknown_ns
    if account.unknown_ns > known_ns:
        return replace(account, source=None, error_ns=None)
    idle_ns = account.unknown_ns * (account.proved_ns + account.estimated_ns) // max(known_ns, 1)
    return replace(
        account,
        estimated_ns=account.estimated_ns + idle_ns,
        busy_ns=account.busy_ns + account.unknown_ns - idle_ns,
        unknown_ns=0,
        error_ns=(account.error_ns or 0) + max(idle_ns, account.unknown_ns - idle_ns),
    )
