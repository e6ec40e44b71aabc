"""gputop.stats/1: totals of a whole recording."""

from __future__ import annotations

from typing import Literal, TypedDict

from gputop.documents.parts import (
    CallJson,
    CallLineJson,
    FailureJson,
    LostByKindJson,
    ThreadTimesJson,
    WaitJson,
)


class KernelJson(TypedDict):
    """The launches of one kernel; name, file and library are empty where they are not known."""

    name: str
    file: str
    library: str
    handle: int
    launches: int
    per_second: float


class _Rare(TypedDict, total=False):
    """What is there where there is something to tell."""

    failures: list[FailureJson]
    kernels: list[KernelJson]


class ProcessTotalsJson(_Rare):
    """A process over the recording."""

    pid: int
    name: str
    command: str
    exited: bool
    calls: list[CallJson]
    threads: list[ThreadTimesJson]
    lines: list[CallLineJson]
    unknown_lines: int
    waits: list[WaitJson]
    unknown_waits: int


class StatsDocument(TypedDict):
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
