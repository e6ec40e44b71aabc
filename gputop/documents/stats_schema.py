"""gputop.stats/1: totals of a whole recording."""

from __future__ import annotations

from typing import Literal, TypedDict

from gputop.documents.shared_schema import (
    CallJson,
    CallLineJson,
    DiskWaitJson,
    FailureJson,
    FaultsJson,
    LostByKindJson,
    OffCpuJson,
    ShapeJson,
    ThreadTimesJson,
    WaitJson,
)


class KernelJson(TypedDict):
    """The launches of one kernel; name, file and library are empty where they are not known.

    ``shapes`` are the most frequent ones; ``unshaped`` launches have a shape that is not known; ``small``
    ones have fewer threads than fill the GPU, None: not known.
    """

    name: str
    file: str
    library: str
    handle: int
    launches: int
    per_second: float
    shapes: list[ShapeJson]
    unshaped: int
    small: int | None


class _ToldOfThread(TypedDict, total=False):
    """What is there where the recording tells it."""

    faults: FaultsJson
    off_cpu: OffCpuJson


class ThreadTotalsJson(ThreadTimesJson, _ToldOfThread):
    """A thread over the recording."""


class _Rare(TypedDict, total=False):
    """What is there where there is something to tell."""

    failures: list[FailureJson]
    kernels: list[KernelJson]
    faults: FaultsJson
    off_cpu: OffCpuJson
    disk_waits: list[DiskWaitJson]
    oom_ns: int


class ProcessTotalsJson(_Rare):
    """A process over the recording."""

    pid: int
    name: str
    command: str
    exited: bool
    calls: list[CallJson]
    threads: list[ThreadTotalsJson]
    lines: list[CallLineJson]
    unknown_lines: int
    waits: list[WaitJson]
    unknown_waits: int


class MachineJson(TypedDict):
    """What the machine as a whole lost time by; None: its kernel does not tell."""

    steal_ns: int | None
    memory_some_ns: int | None
    memory_full_ns: int | None
    tcp_retransmits: int | None


class WorkJson(TypedDict):
    """What a GPU did, by name: ``what`` is kernel, copy, fill or graph."""

    gpu: int
    what: str
    name: str
    count: int
    sum_ns: int
    max_ns: int


class _ToldOfMachine(TypedDict, total=False):
    """What is there where the recording tells it."""

    machine: MachineJson
    gpu_work: list[WorkJson]


class StatsDocument(_ToldOfMachine):
    """Totals of a whole recording."""

    schema: Literal["gputop.stats/1"]
    start_realtime_ns: int
    duration_ns: int
    events: int
    lost: LostByKindJson
    percentiles: str
    processes: list[ProcessTotalsJson]
    problems: list[str]
    calls_observed: bool
