"""gputop.diff/1: whether a change helped."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from gputop.documents.shared_schema import FindingKind, LineJson, LostEventsJson, RangeJson, one_of

MEASURES = ("duration_ns", "idle_ns", "calls", "launches", "voluntary_switches", "involuntary_switches")
MeasureName = Annotated[str, one_of(*MEASURES)]
Unit = Annotated[str, one_of("step", "batch", "launch", "second")]
Became = Annotated[str, one_of("gone", "new", "less", "more", "same")]
KernelBecame = Annotated[str, one_of("gone", "new", "slower", "faster", "more", "fewer", "same")]
Bound = Annotated[str, one_of("lower", "upper")]


class WorkRatioJson(TypedDict):
    """How many steps of BEFORE one step of AFTER is worth, and what tells so."""

    ratio: float
    by: str | None


class SideJson(TypedDict):
    """One of the two recordings."""

    duration_ns: int
    span_ns: int
    idle_ns: RangeJson
    steps: int | None
    left_out: int
    between: int
    lost: LostEventsJson
    verdict: str


class SpreadJson(TypedDict):
    """How a measure lies over the steps."""

    count: int
    usual: float
    mean: float
    median: float
    quartiles: list[float]


class MeasureJson(TypedDict):
    """One measure before and after."""

    name: MeasureName
    before: SpreadJson | None
    after: SpreadJson | None
    clear: bool


class CauseChangeJson(TypedDict):
    """One cause before and after, ns a step, a batch or a second."""

    cause: str
    kind: FindingKind
    title: str
    change: Became
    bound: Bound
    before_ns: float | None
    after_ns: float | None
    before: SpreadJson | None
    after: SpreadJson | None
    max_gain_ns: float | None
    line: LineJson | None


class KernelSideJson(TypedDict):
    """A kernel in one recording: GPU time and runs by unit of work, and how long one takes."""

    ns: float
    runs: float
    run_ns: float


class KernelChangeJson(TypedDict):
    """The kernels of one name before and after; None where there are none."""

    name: str
    change: KernelBecame
    before: KernelSideJson | None
    after: KernelSideJson | None


class DiffDocument(TypedDict):
    """Whether a change helped."""

    schema: Literal["gputop.diff/1"]
    sentence: str
    unit: Unit
    work: WorkRatioJson
    before: SideJson
    after: SideJson
    measures: list[MeasureJson]
    causes: list[CauseChangeJson]
    notes: list[str]
    kernels: list[KernelChangeJson]
