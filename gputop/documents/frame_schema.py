"""gputop.frame/1: what one screen shows, and the verdict that ``--once`` and key ``x`` add."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from gputop.documents.explain_schema import ExplainDocument
from gputop.documents.shared_schema import (
    CallJson,
    CallLineJson,
    FaultsJson,
    LostByKindJson,
    ThreadTimesJson,
    WaitJson,
    one_of,
)

Number = float | None  # what is no finite number becomes null
State = Annotated[str, one_of("running", "runnable", "blocked", "exited")]
GpusSource = Annotated[str, one_of("nvml", "calls", "")]
LinesLookedFor = Annotated[str, one_of("all", "slow", "off")]
GpuUse = Annotated[str, one_of("C", "G", "C+G")]


class FrameCallJson(CallJson):
    """The calls of one function in one process that ended in the window, and those that have not returned."""

    histogram: list[int]
    in_progress: int
    in_progress_ns: int


class ShareJson(TypedDict):
    """Who ran on the CPU that others waited for."""

    pid: int
    tid: int
    name: str
    ns: int
    fraction: Number


class ThreadJson(ThreadTimesJson):
    """A thread within the window."""

    state: State
    cuda: bool | None
    preempted_by: list[ShareJson]


class StormJson(TypedDict):
    """A context-switch storm."""

    pid: int
    name: str
    involuntary_per_second: Number
    runnable_percent: Number
    occupants: list[ShareJson]


class BelongsJson(TypedDict, total=False):
    """Whose a process is beyond its user; each key is there where it is known."""

    pod: str
    namespace: str
    pod_container: str
    job_kind: str
    job_id: str
    job_step: str
    rank: int
    local_rank: int
    world_size: int


class _MayBelong(TypedDict, total=False):
    belongs: BelongsJson
    faults: FaultsJson
    unlisted_threads: int


class ProcessJson(_MayBelong):
    """A watched process within the window."""

    pid: int
    parent_pid: int
    name: str
    command: str
    user: str
    start_ns: int
    exited_ns: int | None
    gpus: list[int] | None
    gpu_memory_bytes: int | None
    calls_per_second: Number
    top_api: str
    top_api_ns_per_second: Number
    top_api_p99_ns: int | None
    voluntary_per_second: Number
    involuntary_per_second: Number
    runnable_percent: Number
    blocked_percent: Number
    on_cpu_percent: Number
    calls: list[FrameCallJson]
    threads: list[ThreadJson]
    gpus_source: GpusSource
    gpus_unknown: str
    namespace_pid: int | None
    container: str
    sm_percent: int | None
    memory_percent: int | None
    rss_bytes: int | None
    run_ns: int | None
    watts: Number
    lines: list[CallLineJson]
    unknown_lines: int
    waits: list[WaitJson]
    unknown_waits: int


class _IdleJson(TypedDict, total=False):
    """Of a process that does nothing on its GPU."""

    idle_ns: int


class GpuProcessJson(_IdleJson):
    """Who has a context on a GPU, watched or not."""

    pid: int
    kind: GpuUse
    memory_bytes: int | None
    sm_percent: int | None
    memory_percent: int | None
    encoder_percent: int | None
    decoder_percent: int | None
    gpu_instance: int | None
    name: str
    user: str
    command: str
    container: str
    watched: bool


class MigJson(TypedDict):
    """An instance of a GPU that is cut."""

    index: int
    uuid: str
    name: str
    gpu_instance: int | None
    compute_instance: int | None
    multiprocessors: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    sm_active_percent: Number
    sm_occupancy_percent: Number
    tensor_active_percent: Number
    dram_bandwidth_percent: Number
    unavailable: dict[str, str]


class GpuJson(TypedDict):
    """One GPU, as NVML tells of it."""

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
    unavailable: dict[str, str]
    utilization_history: list[int | None]
    age_ns: int
    lost: str
    pci_bus_id: str
    performance_state: int | None
    sm_clock_max_mhz: int | None
    memory_clock_max_mhz: int | None
    clock_event_reasons: int | None
    clock_events: list[str] | None
    pcie_generation: int | None
    pcie_generation_max: int | None
    pcie_width: int | None
    pcie_width_max: int | None
    nvlink_tx_bytes_per_second: int | None
    nvlink_rx_bytes_per_second: int | None
    encoder_percent: int | None
    decoder_percent: int | None
    ecc_corrected_errors: int | None
    ecc_uncorrected_errors: int | None
    ecc_corrected_total: int | None
    ecc_uncorrected_total: int | None
    sm_active_percent: Number
    sm_occupancy_percent: Number
    tensor_active_percent: Number
    dram_bandwidth_percent: Number
    mig_enabled: bool | None
    mig: list[MigJson]
    processes: list[GpuProcessJson] | None


class HostJson(TypedDict):
    """The machine."""

    cpu_percent: Number
    cores_percent: list[float]
    load: list[float]
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    swap_total_bytes: int | None
    swap_free_bytes: int | None
    pressure_cpu_percent: Number
    pressure_memory_percent: Number
    pressure_io_percent: Number
    disk_read_bytes_per_second: int | None
    disk_write_bytes_per_second: int | None
    received_bytes_per_second: int | None
    sent_bytes_per_second: int | None


class VerdictJson(TypedDict, total=False):
    """What ``--once`` and key ``x`` add: the explanation of the last seconds."""

    verdict: ExplainDocument | None


class FrameDocument(VerdictJson):
    """What one screen shows."""

    schema: Literal["gputop.frame/1"]
    percentiles: str
    number: int
    time_ns: int
    wall_ns: int
    start_ns: int
    window_ns: int
    utc_offset_s: int
    rate_hz: Number
    lost: LostByKindJson
    own_cpu_percent: Number
    own_rss_bytes: int
    events_per_second: Number
    calls_per_second: Number
    gpus: list[GpuJson]
    processes: list[ProcessJson]
    storms: list[StormJson]
    problems: list[str]
    notes: list[str]
    driver: str
    lines: LinesLookedFor
    calls_observed: bool
    host: HostJson | None
