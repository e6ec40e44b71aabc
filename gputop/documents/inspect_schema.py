"""gputop.inspect/1: the contents of a session file."""

from __future__ import annotations

from typing import Literal, TypedDict

from gputop.documents.shared_schema import LostByKindJson


class RecordedMachineJson(TypedDict):
    """The recorded machine."""

    host: str | None
    kernel: str | None
    architecture: str | None
    cpus: int | None
    memory_bytes: int | None


class InspectedGpuJson(TypedDict):
    """A GPU that NVML listed."""

    index: int
    name: str
    uuid: str
    memory_total_bytes: int | None


class LibraryJson(TypedDict):
    """A library whose functions were traced."""

    layer: str
    build_id: str
    symbols: int


class ProbesJson(TypedDict):
    """The probes of the recording."""

    calls_observed: bool
    lines: str | None
    rate_hz: float | None
    ring_bytes: int | None
    libraries: list[LibraryJson]


class CostJson(TypedDict):
    """The cost of recording; null where the file lacks it."""

    own_cpu_percent_mean: float | None
    own_cpu_percent_max: float | None
    own_rss_bytes_max: int | None


class GapJson(TypedDict):
    """A stretch without marks: not recorded, or damaged."""

    start_ns: int
    end_ns: int


class PartJson(TypedDict):
    """One of the recordings that a file was merged from; its clock's error is null where unknown."""

    path: str | None
    host: str | None
    begin_ns: int
    end_ns: int
    clock: str
    later_ns: int
    drift_ppm: float
    error_ns: int | None
    pids_from: int
    gpus_from: int


class KindSizeJson(TypedDict):
    """The chunks of a kind."""

    kind: str
    chunks: int
    items: int
    size_bytes: int


class SizesJson(TypedDict):
    """The bytes of the file."""

    size_bytes: int
    other_bytes: int
    bytes_per_record: float | None
    kinds: list[KindSizeJson]


class InspectDocument(TypedDict):
    """The contents of a session file."""

    schema: Literal["gputop.inspect/1"]
    format: str
    recorder: str | None
    source: str
    start_realtime_ns: int | None
    duration_ns: int
    frames: int
    private: bool
    cut: bool
    machine: RecordedMachineJson
    driver: str | None
    gpus: list[InspectedGpuJson]
    probes: ProbesJson
    processes: int
    cost: CostJson
    lost: LostByKindJson
    gaps: list[GapJson]
    parts: list[PartJson]
    not_recorded: list[GapJson]
    not_kept: list[GapJson]
    closed: bool
    sizes: SizesJson
    notes: list[str]
    problems: list[str]
