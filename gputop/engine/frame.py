"""The immutable frame: the content of one screen, one ``--once`` or one JSON object.

The engine makes frames from items (probes/source.py); those of a live run and its replay are equal. Units are
in the names; ``None``: unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from gputop.documents.fields import FLAT, HIDDEN, NULLABLE, PAIRS, RARE, Mark, document, marked
from gputop.documents.shared_schema import BelongsJson, GpusSource, GpuUse, Layer, LinesLookedFor, State
from gputop.engine.calls.histogram import METHOD
from gputop.engine.calls.launch_counts import KernelRow
from gputop.engine.calls.stack_table import Line
from gputop.engine.host_figures import HostRow
from gputop.engine.threads.fault_sums import Faults
from gputop.engine.wallclock import WallClock
from probes import api
from probes.samples import lost_until
from probes.schema import LOSS_KINDS
from probes.source import Sample

SCHEMA: Final = "gputop.frame/1"
OFF_CPU = "off-CPU"  # in place of a function where a line waits between two calls
UNPLACED = Line("", 0, "stack not known")
LAUNCHES_BELOW = frozenset(row.name for row in api.TABLE if row.shape and row.layer == api.DRIVER)


def stacks_recorded(header: Mapping[str, Any]) -> str:
    """Return the calls whose stacks a session has, by its header: all, slow or off."""
    choice = str(header.get("lines", "off"))
    return "slow" if choice == "costly" else choice  # its former name


@dataclass(frozen=True, slots=True)
class CallTotals:
    """The calls of one function in one process."""

    api: str
    layer: Layer
    nested: bool
    count: int
    errors: int
    bytes: int
    sum_ns: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int

    @property
    @marked(Mark())
    def at_most(self) -> bool:
        """True if its times may be those of the calls around it (``CallFlag.WITHIN``), an upper bound."""
        return self.nested and self.api in LAUNCHES_BELOW


@dataclass(frozen=True, slots=True)
class CallRow(CallTotals):
    """The calls that ended in the window, and those that have not returned."""

    histogram: tuple[int, ...]  # [i] counts calls of 2**i <= ns < 2**(i+1)
    in_progress: int = 0  # calls that have not returned at the mark
    in_progress_ns: int = 0  # age of the oldest of them


def call_totals(rows: tuple[CallRow, ...]) -> list[dict[str, Any]]:
    """Return calls without the fields of a window."""
    return [document(row, CallTotals) for row in rows]


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one occupant of a CPU for which others waited, or of several of one name."""

    pid: int
    tid: int
    name: str
    ns: int
    fraction: Annotated[float, NULLABLE]
    threads: int = 1


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """One thread within the window; on_cpu + runnable + blocked = the time it lived in the window."""

    tid: int
    name: str
    voluntary_switches: int
    involuntary_switches: int
    on_cpu_ns: int
    runnable_ns: int
    blocked_ns: int
    state: State
    cuda: Annotated[bool, NULLABLE]  # made a traced call within the window
    preempted_by: tuple[Share, ...] = ()  # occupants of its CPU while it was runnable, most first


@dataclass(frozen=True, slots=True)
class LineRow:
    """The outermost calls of one function that a line made; ``frames``: the stack of most of that time."""

    line: Annotated[Line, FLAT]
    api: str
    count: int
    sum_ns: int
    frames: tuple[Line, ...] = ()  # from the innermost on


@dataclass(frozen=True, slots=True)
class WaitRow:
    """The times that a line kept CUDA threads (all threads when none calls CUDA) blocked between calls."""

    line: Annotated[Line, FLAT]
    count: int
    sum_ns: int


@dataclass(frozen=True, slots=True)
class StackRow:
    """The calls of one function, or the waits between calls (OFF_CPU), from one stack.

    Without frames: all stacks without a row of their own; only ``UNPLACED``: unknown ones.
    """

    frames: tuple[Line, ...]  # from the innermost on
    api: str
    count: int
    sum_ns: int


@dataclass(frozen=True, slots=True)
class SampleRow:
    """Samples of running threads between two calls at a line."""

    line: Line
    count: int


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One watched process within the window."""

    pid: int
    parent_pid: int
    name: str
    command: str
    user: str
    start_ns: int
    exited_ns: int | None  # CLOCK_MONOTONIC of its end
    gpus: tuple[int, ...] | None  # NVML's indices; None if unknown
    gpu_memory_bytes: int | None  # None if NVML does not report it
    calls_per_second: Annotated[float, NULLABLE]  # outermost calls only
    top_api: str  # the API with most time in outermost calls, "" without calls
    top_api_ns_per_second: Annotated[float, NULLABLE]
    top_api_p99_ns: Annotated[int, NULLABLE]
    # of its threads; None where not observed, as in an imported trace
    voluntary_per_second: float | None
    involuntary_per_second: float | None
    runnable_percent: float | None  # sum over its threads; 100 is one thread waiting for a CPU all the time
    blocked_percent: float | None  # of the time of its CUDA threads (of all threads when none calls CUDA)
    on_cpu_percent: float | None  # sum over its threads, as top shows it
    calls: tuple[CallRow, ...]
    threads: tuple[ThreadRow, ...]
    gpus_source: GpusSource = ""  # nvml: its process list; calls: devices named in CUDA calls; "": unknown
    gpus_unknown: str = ""  # why they are unknown
    namespace_pid: int | None = None  # its number within its container, if it is in one
    container: str = ""  # kind and id of that container
    lines: tuple[LineRow, ...] = ()  # of calls with stacks (--stacks), most time first
    unknown_lines: int = 0  # such calls at unknown lines
    waits: tuple[WaitRow, ...] = ()  # unless stacks are off; most time first
    unknown_waits: int = 0  # such waits at unknown lines
    # of these calls and waits to the ns, most time first
    stacks: Annotated[tuple[StackRow, ...], HIDDEN] = ()
    samples: Annotated[tuple[SampleRow, ...], HIDDEN] = ()  # of threads on a CPU between calls, most first
    sampled: Annotated[int, HIDDEN] = 0  # how many there are in all, of unknown lines as well
    # pod, job, rank, …: keys of belonging.KEYS
    belongs: Annotated[tuple[tuple[str, str | int], ...], Mark(rare=True, schema=BelongsJson, make=dict)] = ()
    kernels: Annotated[tuple[KernelRow, ...], HIDDEN] = ()  # by kernel, most first, where some have names
    faults: Annotated[Faults | None, RARE] = None  # page faults in the window; None: unknown
    # NVML's newest samples, summed over its GPUs: 100 is one GPU all the time; None where NVML has none
    sm_percent: int | None = None  # with one of its kernels on an SM
    memory_percent: int | None = None  # with reads or writes of GPU memory
    rss_bytes: int | None = None  # resident memory on the host
    run_ns: int | None = None  # since it began, until its end
    watts: float | None = None  # its share of its GPUs' power, by SM time; alone on a GPU, all of it
    watched: Annotated[bool, HIDDEN] = True  # False: it uses a GPU and is known by NVML and /proc only
    unlisted_threads: Annotated[int, RARE] = 0  # in JSON: threads that are not listed


@dataclass(frozen=True, slots=True)
class Storm:
    """A context-switch storm: at least 500 involuntary switches/s and runnable at least 20 %, over 2 s."""

    pid: int
    name: str
    involuntary_per_second: Annotated[float, NULLABLE]
    runnable_percent: Annotated[float, NULLABLE]
    occupants: tuple[Share, ...]  # of the CPUs for which its threads waited; fractions sum to <= 1


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU, watched or not. Shares are of the GPU's time in NVML's newest sample of it."""

    pid: int
    kind: GpuUse  # C: computes, G: draws, C+G
    memory_bytes: int | None
    sm_percent: int | None  # 0: idle in the last second
    memory_percent: int | None
    encoder_percent: int | None
    decoder_percent: int | None
    gpu_instance: int | None  # NVML's number of the MIG instance it is on
    name: str  # "" if unknown
    user: str
    command: str
    container: str  # "" outside of one
    watched: bool
    idle_ns: Annotated[int | None, RARE] = None  # idle on it for so long at least; None: at work, or unknown


@dataclass(frozen=True, slots=True)
class MigRow:
    """An instance of a partitioned GPU (MIG)."""

    index: int
    uuid: str
    name: str
    gpu_instance: int | None
    compute_instance: int | None
    multiprocessors: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    sm_active_percent: float | None
    sm_occupancy_percent: float | None
    tensor_active_percent: float | None
    dram_bandwidth_percent: float | None
    unavailable: Annotated[tuple[tuple[str, str], ...], PAIRS] = ()


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU as NVML shows it at the newest sample; ``None`` with the reason in ``unavailable``.

    Errors of memory (ECC) are counted since the driver was loaded, those named total since the GPU was made.
    """

    index: int
    uuid: str
    name: str
    utilization_percent: int | None
    memory_utilization_percent: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_milliwatts: int | None
    power_limit_milliwatts: int | None
    temperature_celsius: int | None
    fan_percent: int | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    pcie_tx_bytes_per_second: int | None
    pcie_rx_bytes_per_second: int | None
    unavailable: Annotated[tuple[tuple[str, str], ...], PAIRS] = ()  # (key, reason in words)
    utilization_history: tuple[int | None, ...] = ()  # one value a mark, oldest first, at most 240
    age_ns: int = 0  # how old the sample is at the mark; grows when NVML hangs
    lost: str = ""  # why it no longer answers
    pci_bus_id: str = ""
    performance_state: int | None = None  # 0: fastest
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    clock_event_reasons: int | None = None  # bits of NVML's nvmlClocksEventReasons
    clock_events: tuple[str, ...] | None = None  # the same as text; () if nothing limits the clocks
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlink_tx_bytes_per_second: int | None = None
    nvlink_rx_bytes_per_second: int | None = None
    encoder_percent: int | None = None
    decoder_percent: int | None = None
    ecc_corrected_errors: int | None = None
    ecc_uncorrected_errors: int | None = None
    ecc_corrected_total: int | None = None
    ecc_uncorrected_total: int | None = None
    sm_active_percent: float | None = None  # of the SMs' time, with at least one warp
    sm_occupancy_percent: float | None = None  # of the warps that the SMs could hold
    tensor_active_percent: float | None = None
    dram_bandwidth_percent: float | None = None
    compute_mode: str | None = None  # default, exclusive process, exclusive thread, prohibited
    persistence_enabled: bool | None = None  # the driver stays loaded while no process uses the GPU
    mig_enabled: bool | None = None
    mig: tuple[MigRow, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """Events that the probes could not deliver since the start, by kind (probes.schema.LOSS_KINDS)."""

    events: int
    by_kind: Annotated[tuple[tuple[str, int], ...], Mark(schema=dict[str, int], make=dict)] = ()

    @classmethod
    def since(cls, before: Mapping[str, int], mark: Sample | None) -> Lost:
        """Return the events counted at a mark, without those lost before."""
        lost = {kind: count - before.get(kind, 0) for kind, count in lost_until(mark).items()}
        return cls(sum(lost.values()), tuple((kind, lost.get(kind, 0)) for kind in LOSS_KINDS))


@dataclass(frozen=True, slots=True)
class Frame:
    """One tick."""

    number: int
    time_ns: int  # the mark, CLOCK_MONOTONIC
    wall_ns: int  # the same instant, ns since the epoch
    start_ns: int  # CLOCK_MONOTONIC of the session's start
    window_ns: int  # of rates and percentiles
    utc_offset_s: int
    rate_hz: Annotated[float, NULLABLE]
    lost: Lost
    own_cpu_percent: Annotated[float, NULLABLE]
    own_rss_bytes: int
    events_per_second: Annotated[float, NULLABLE]
    calls_per_second: Annotated[float, NULLABLE]
    gpus: tuple[GpuRow, ...]
    processes: tuple[ProcessRow, ...]
    storms: tuple[Storm, ...]
    problems: tuple[str, ...]  # missing data, in sentences
    notes: tuple[str, ...]  # the newest events of the tracing itself
    driver: str = ""  # driver version and NVML library, "" without NVML
    cuda: str = ""  # the newest CUDA that the driver runs, "" if unknown
    lines: LinesLookedFor = "off"  # calls whose line is recorded: all, slow or off
    clock: Annotated[WallClock | None, HIDDEN] = None  # lead of the wall clock up to here
    host: HostRow | None = None  # the machine; None where not observed
    unwatched: Annotated[tuple[ProcessRow, ...], HIDDEN] = ()  # other users of the GPUs
    calls_observed: bool = True  # False without eBPF: no calls and no occupants of CPUs are known

    @property
    @marked(Mark())
    def schema(self) -> Literal["gputop.frame/1"]:
        return SCHEMA

    @property
    @marked(Mark())
    def percentiles(self) -> str:
        return METHOD
