"""gputop.explain/1: why the GPU waits."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from gputop.documents.memory_schema import MemoryJson
from gputop.documents.shared_schema import (
    Class,
    FailureJson,
    FindingKind,
    LineJson,
    LostJson,
    RangeJson,
    ShapeJson,
    Sureness,
    one_of,
)

Source = Annotated[str, one_of("nvml", "learned", "both", "several")]
LinkLayer = Annotated[str, one_of("gpu", "cuda", "host", "system")]

_DiagnosisClass = TypedDict("_DiagnosisClass", {"class": Class | None})
_DocumentClass = TypedDict("_DocumentClass", {"class": Class | None})


class DiagnosisJson(_DiagnosisClass):
    """What kind of trouble it is, with its grounds."""

    title: str
    level: Sureness
    evidence: list[str]
    advice: list[str]
    line: LineJson | None


class IdleJson(RangeJson):
    """How long a GPU had nothing to do, ns, and who says the estimate."""

    source: Source | None


class AccountJson(TypedDict):
    """The span of a GPU as parts that add up to it, ns."""

    proved_idle: int
    estimated_idle: int
    busy: int
    unknown: int


class GpuSpanJson(TypedDict):
    """One GPU."""

    label: str
    span_ns: int
    idle_ns: IdleJson
    account_ns: AccountJson
    error_ns: int | None
    sources_agree: bool


class LongStepJson(TypedDict):
    """When a step began, since the start of the recording, and what it took."""

    time_ns: int
    ns: int


class LongStepsJson(TypedDict):
    """Steps so uneven that a mean tells of none of them."""

    total_ns: int
    count: int
    ns: int
    longest: list[LongStepJson]


class GrowthJson(TypedDict):
    """Steps that get longer: first and last quarter, and the part that grows most."""

    first_ns: int
    last_ns: int
    part_ns: int
    part: str
    line: LineJson | None
    text: str


class StepsJson(TypedDict):
    """The steps that repeat."""

    count: int
    median_ns: int
    usual_ns: int
    long: LongStepsJson | None
    growth: GrowthJson | None
    pid: int
    tid: int


class LinkJson(TypedDict):
    """A link of a chain, from the GPU down to what is to blame."""

    layer: LinkLayer
    pid: int
    tid: int
    text: str
    ns: int
    events: int
    role: str
    line: LineJson | None


class EventJson(TypedDict):
    """A long gap that did not repeat."""

    time_ns: int
    ns: int
    cause: str
    level: Sureness
    title: str
    pid: int
    chain: list[LinkJson]
    line: LineJson | None


class FindingJson(TypedDict):
    """One loss that repeats."""

    cause: str
    kind: FindingKind
    title: str
    level: Sureness
    idle_level: Sureness
    name_level: Sureness
    loss_ns: RangeJson
    pid: int
    tid: int
    api: str
    chain: list[LinkJson]
    evidence: list[str]
    ruled_out: list[str]
    advice: list[str]
    max_gain_ns: int
    gain_because: str
    moments_ns: list[int]
    gaps: int
    per_step_ns: int | None
    line: LineJson | None


class WhatIfJson(TypedDict):
    """A step before and after a cause is gone."""

    cause: str
    step_before_ns: int
    step_after_ns: int
    step_least_ns: int


class StormCostJson(TypedDict):
    """A thread that is switched very often, and the GPU time that this cost."""

    pid: int
    tid: int
    name: str
    switches: int
    switches_per_second: float
    gpu_ns: int


class KernelLineJson(LineJson):
    """A line, and the launches of a kernel that were made there."""

    launches: int


class GpuTimeJson(TypedDict):
    """GPU time, estimated by regression, and by how much that may be off."""

    estimate: int
    error: int


class LaunchedKernelJson(TypedDict):
    """The launches of one process that have one name; "" is the name of all that have none."""

    pid: int
    name: str
    file: str
    library: str
    handles: int
    launches: int
    per_second: float
    per_step: float | None
    lines: list[KernelLineJson]
    unplaced: int
    shapes: list[ShapeJson]
    unshaped: int
    small: int | None
    captured: int
    gpu_ns: GpuTimeJson | None


class MadeGraphsJson(TypedDict):
    """The graphs that one process instantiates at one line; None: not known."""

    pid: int
    line: LineJson | None
    instantiated: int
    updated: int
    launches: int
    kernels_least: int | None
    kernels_most: int | None


class UnseenGraphsJson(TypedDict):
    """Launches of graphs whose making was not seen."""

    pid: int
    launches: int


class FittingJson(TypedDict):
    """Launches that are the same in nearly every step, and would fit a graph."""

    pid: int
    first: LineJson | None
    last: LineJson | None
    launches: int
    steps: int
    of_steps: int
    host_ns: int


class GraphsJson(TypedDict):
    """CUDA graphs, and what would fit one."""

    made: list[MadeGraphsJson]
    unseen: list[UnseenGraphsJson]
    fitting: list[FittingJson]


class RankJson(TypedDict):
    """When one rank came to the collectives that all ranks were seen to call."""

    pid: int
    tid: int
    gpu: str | None
    collectives: int
    last: int
    late_ns: int
    ahead_ns: int


class GpuEnergyJson(TypedDict):
    """The energy of a GPU."""

    index: int
    measured_ns: int
    joules: float
    watts: float


class ProcessEnergyJson(TypedDict):
    """The part of a process."""

    pid: int
    joules: float
    watts: float


class EnergyJson(TypedDict):
    """What GPUs and processes took."""

    gpus: list[GpuEnergyJson]
    processes: list[ProcessEnergyJson]
    step_joules: float | None
    saved_joules: list[float]


class ExactGpuJson(TypedDict):
    """A GPU; what is exposed ran while nothing else did."""

    label: str
    busy_ns: int
    copies_ns: int
    exposed_copies_ns: int
    communication_ns: int
    exposed_communication_ns: int


class ExactLineJson(LineJson):
    """A line, and the GPU time of what it launched."""

    ns: int


class ExactKernelJson(TypedDict):
    """The runs of kernels of one name; delays are of the linked ones, whose launch is known."""

    pid: int
    name: str
    runs: int
    ns: int
    longest_ns: int
    linked: int
    delay_ns: int
    longest_delay_ns: int
    ahead: int
    lines: list[ExactLineJson]


class ExactJson(TypedDict):
    """What GPUs did by their own clock, which may be ``error_ns`` off; None: not known."""

    error_ns: int | None
    gpus: list[ExactGpuJson]
    kernels: list[ExactKernelJson]


class _Rare(TypedDict, total=False):
    """What is there where there is something to tell."""

    failures: list[FailureJson]
    memory: MemoryJson
    kernels: list[LaunchedKernelJson]
    exact: ExactJson
    graphs: GraphsJson
    ranks: list[RankJson]
    energy: EnergyJson


class ExplainDocument(_DocumentClass, _Rare):
    """Why the GPU waits."""

    schema: Literal["gputop.explain/1"]
    start_ns: int
    duration_ns: int
    verdict: str
    diagnosis: DiagnosisJson | None
    gpu_idle_ns: IdleJson
    span_ns: int
    gpus: list[GpuSpanJson]
    steps: StepsJson | None
    outside_ns: int
    events: list[EventJson]
    findings: list[FindingJson]
    what_if: list[WhatIfJson]
    storms: list[StormCostJson]
    small_ns: int
    unexplained_ns: int
    unknown_ns: int
    coverage: bool
    lost: LostJson
    notes: list[str]
