"""The data of each kind of sample: one type a kind, and ``sample_data``, which returns it.

docs/session-format.md has the meaning of the keys. Files come from older and newer gputops and may be
damaged, so any key may be missing, and readers convert numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypedDict, cast, overload

from probes.source import GPUS, MARK, Item, Sample

# a GPU's row; its keys are many, see ``gputop/engine/gpus/nvml_rows.py``
GpuData: TypeAlias = Mapping[str, Any]


class MarkData(TypedDict, total=False):
    """``mark``: closes a tick."""

    number: int
    wall_ns: int
    lost: dict[str, int]  # since the start, by kind
    begun: int
    read: int
    own_cpu_percent: float
    own_rss_bytes: int
    activities: list[int]  # how many were reported since the mark before, and when the first of them began


class GpusData(TypedDict, total=False):
    """``gpus``: NVML's figures."""

    driver: str
    error: str
    gpus: list[GpuData]


class ClientData(TypedDict, total=False):
    """``client``: a process that uses a GPU and is not watched."""

    pid: int
    start_ns: int
    parent_pid: int
    name: str
    command: str
    user: str
    uid: int
    namespace_pid: int | None
    container: str


class ProcessData(ClientData, total=False):
    """``process``: facts of a watched process; later ones add to earlier ones."""

    seen_ns: int
    watched: bool
    exited_ns: int | None
    exit_code: int
    oom_ns: int
    inside_from_ns: int  # from then on CUPTI reports its work on a GPU (``--inside``)
    inside_until_ns: int
    inside_refused: str  # why it does not
    inside_error_ns: int  # of CUPTI's times on CLOCK_MONOTONIC
    called: bool
    cuda_visible_devices: str | None
    cuda_device_order: str | None
    cuda_devices: list[int]
    cuda_devices_missed: bool
    cuda_devices_hidden: bool
    part: int  # of a merged recording, from 0 on
    host: int  # the same of its host; 0 where it is not there
    pod: str
    namespace: str
    pod_container: str
    job_kind: str
    job_id: str
    job_step: str
    rank: int
    local_rank: int
    world_size: int


class NamesData(TypedDict, total=False):
    """``names``: of threads; lists of equal length."""

    tid: list[int]
    pid: list[int]
    name: list[str]


class OpenData(TypedDict, total=False):
    """``open``: all watched threads at the mark; lists of equal length."""

    pid: list[int]
    tid: list[int]
    off_since: list[int]
    queued_since: list[int]
    queue_cpu: list[int]
    op: list[int]
    call_since: list[int]
    flags: list[int]
    syscall: list[int]
    argument: list[int]
    ended: list[int]  # of a merged recording: true if the thread's part has ended


class CountersData(TypedDict, total=False):
    """``counters``: the kernel's counters of each thread; lists of equal length."""

    pid: list[int]
    tid: list[int]
    born_ns: list[int]
    state: list[str]
    on_cpu_ns: list[int]
    run_delay_ns: list[int]
    voluntary: list[int]
    involuntary: list[int]


class FaultsData(TypedDict, total=False):
    """``faults``: the growth since the last report; lists of equal length."""

    pid: list[int]
    tid: list[int]  # 0: of the process, all its threads and those that ended
    minor: list[int]
    major: list[int]


class MachineData(TypedDict, total=False):
    """``machine``: the growth since the last report."""

    steal_ns: int
    memory_some_ns: int
    memory_full_ns: int
    tcp_retransmits: int


class HostData(TypedDict, total=False):
    """``host``: figures of the machine; rates and shares are of the time since the last report."""

    cores_percent: list[float]  # of each CPU, busy
    load: list[float]  # of 1, 5 and 15 minutes
    uptime_s: int
    processes: int
    threads: int
    cpu_mhz: int  # of the first CPU
    cpu_temperature_celsius: int  # of the hottest
    memory_total_bytes: int
    memory_available_bytes: int
    memory_free_bytes: int
    memory_cached_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int
    pressure_cpu_percent: float  # PSI: some task waited for it
    pressure_memory_percent: float
    pressure_io_percent: float
    disk_read_bytes_per_second: int
    disk_write_bytes_per_second: int
    disk_busy_percent: float  # of the busiest
    received_bytes_per_second: int
    sent_bytes_per_second: int
    received_bytes: int  # since the machine's start
    sent_bytes: int


class ResidentData(TypedDict, total=False):
    """``resident``: memory of watched processes and of other users of GPUs; lists of equal length."""

    pid: list[int]
    rss_bytes: list[int]
    cpu_ns: list[int | None]


class OthersData(TypedDict, total=False):
    """``others``: activity of processes since the mark before; lists of equal length."""

    pid: list[int]
    calls: list[int]
    lived_ns: list[int]
    runnable_ns: list[int]
    blocked_ns: list[int]
    voluntary: list[int]
    involuntary: list[int]


class FilesData(TypedDict, total=False):
    """``files``: kinds of descriptors; lists of equal length."""

    pid: list[int]
    fd: list[int]
    what: list[str]


class FramesData(TypedDict, total=False):
    """``frames``: stacks by number; lists of equal length."""

    pid: list[int]
    stack: list[int]
    frames: list[list[tuple[str, int, str]]]


class ShapesData(TypedDict, total=False):
    """``shapes``: of launches, by number; lists of equal length."""

    shape: list[int]
    sizes: list[list[int]]  # grid and block, x, y, z each, and bytes of dynamic shared memory


class PlacesData(TypedDict, total=False):
    """``places``: where threads were on a CPU; lists of equal length. Older files have the first three."""

    time: list[int]
    tid: list[int]
    stack: list[int]
    pid: list[int]
    syscall: list[int]  # ``NO_SYSCALL`` outside of one
    argument: list[int]  # the first one of the system call, its lower half


class ApisData(TypedDict, total=False):
    """``apis``: the API table; rows of name, layer, group."""

    rows: list[list[str]]


class ActivityData(TypedDict, total=False):
    """``activity``: measurements of others (``probes/activities.py``)."""

    columns: dict[str, int | bytes]
    texts: list[str]


class CarriedData(TypedDict, total=False):
    """``carried``: calls from before the recording's start, as columns of records."""

    complete: list[int]
    columns: dict[str, bytes]


class HoleData(TypedDict, total=False):
    """``hole``: of the records between two marks some are not in the file."""

    why: str
    parts: list[int]  # of a merged file: which of them were not recorded then


class TextData(TypedDict, total=False):
    """``problem``, ``marker``, ``note``: a sentence."""

    text: str
    about: str  # of a problem: a later one about the same thing replaces it, one without text ends it
    layer: str  # of a note about an attached library
    pid: int


@overload
def sample_data(item: Item, kind: Literal["mark"]) -> MarkData | None: ...
@overload
def sample_data(item: Item, kind: Literal["gpus"]) -> GpusData | None: ...
@overload
def sample_data(item: Item, kind: Literal["process"]) -> ProcessData | None: ...
@overload
def sample_data(item: Item, kind: Literal["client"]) -> ClientData | None: ...
@overload
def sample_data(item: Item, kind: Literal["names"]) -> NamesData | None: ...
@overload
def sample_data(item: Item, kind: Literal["open"]) -> OpenData | None: ...
@overload
def sample_data(item: Item, kind: Literal["counters"]) -> CountersData | None: ...
@overload
def sample_data(item: Item, kind: Literal["others"]) -> OthersData | None: ...
@overload
def sample_data(item: Item, kind: Literal["machine"]) -> MachineData | None: ...
@overload
def sample_data(item: Item, kind: Literal["host"]) -> HostData | None: ...
@overload
def sample_data(item: Item, kind: Literal["resident"]) -> ResidentData | None: ...
@overload
def sample_data(item: Item, kind: Literal["faults"]) -> FaultsData | None: ...
@overload
def sample_data(item: Item, kind: Literal["files"]) -> FilesData | None: ...
@overload
def sample_data(item: Item, kind: Literal["frames"]) -> FramesData | None: ...
@overload
def sample_data(item: Item, kind: Literal["shapes"]) -> ShapesData | None: ...
@overload
def sample_data(item: Item, kind: Literal["places"]) -> PlacesData | None: ...
@overload
def sample_data(item: Item, kind: Literal["apis"]) -> ApisData | None: ...
@overload
def sample_data(item: Item, kind: Literal["activity"]) -> ActivityData | None: ...
@overload
def sample_data(item: Item, kind: Literal["carried"]) -> CarriedData | None: ...
@overload
def sample_data(item: Item, kind: Literal["hole"]) -> HoleData | None: ...
@overload
def sample_data(item: Item, kind: Literal["problem", "marker", "note"]) -> TextData | None: ...
def sample_data(item: Item, kind: str) -> object:
    """The data of a sample of this kind; None for anything else."""
    return item.data if isinstance(item, Sample) and item.kind == kind else None


def lost_until(mark: Item | None) -> dict[str, int]:
    """Lost events since the start until a mark, by kind."""
    data = sample_data(mark, MARK) if mark is not None else None
    return {str(kind): int(count) for kind, count in (data or {}).get("lost", {}).items()}


def listed_gpus(sample: Item | None) -> list[GpuData]:
    """The rows of a ``gpus`` sample; damaged ones are left out."""
    data = sample_data(sample, GPUS) if sample is not None else None
    return [row for row in (data or {}).get("gpus") or () if isinstance(row, dict)]


def text_of(sample: Sample) -> str:
    """The sentence of a ``problem``, a ``marker`` or a ``note``."""
    return str(sample.data.get("text", ""))


def process_data(sample: Sample) -> ProcessData | None:
    """The data of a ``process`` sample that names its process."""
    data = sample_data(sample, "process")
    return data if data is not None and isinstance(data.get("pid"), int) else None


def merged(known: ProcessData | None, later: ProcessData) -> ProcessData:
    """A process's facts after a later sample. A new process may get the number of one that has ended."""
    if known is None or (
        known.get("exited_ns") is not None and "exited_ns" in later and later["exited_ns"] is None
    ):
        return cast(ProcessData, {**later})
    seen: ProcessData = {"seen_ns": known["seen_ns"]} if "seen_ns" in known else {}
    return cast(ProcessData, {**known, **later, **seen})


def section(header: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a file's header, such as ``machine``; empty where it is not there, or is no such part."""
    part = header.get(name)
    return part if isinstance(part, Mapping) else {}
