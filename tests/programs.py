"""Synthetic programs for the explanation: calls, sleeps and lives with every time known, in microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gputop.analysis.answer.report import Report
from gputop.analysis.build import explain
from gputop.analysis.chains.analysis import Analysis, analyse
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.gatherer import Gatherer
from probes.schema import ALIASED, COPY_SHIFT, CallFlag, ExitFlag, Kind, OffFlag, Records
from probes.source import Sample
from tests import items
from tests.items import HEADER, START

US = 1_000
H2D, D2H, D2D = 1, 2, 3
MAIN = 10  # the usual process and its main thread
FUTEX, POLL, PREAD, FSYNC, RECVFROM, NANOSLEEP = 202, 7, 17, 74, 45, 35  # x86-64

BLOCKING, FREE, PER_THREAD = 0x100, 0x101, 2  # streams
KERNEL, LAUNCH = 0xC0DE, "cudaLaunchKernel"
SYNC, DEVICE_SYNC, QUERY = "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaStreamQuery"
RECORD, EVENT_SYNC, EVENT_QUERY = "cudaEventRecord", "cudaEventSynchronize", "cudaEventQuery"
WAIT, COPY, COPY_ASYNC = "cudaStreamWaitEvent", "cudaMemcpy", "cudaMemcpyAsync"


@dataclass
class Program:
    """Records of one or more processes; times count from the start of the recording."""

    records: list[Records] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=lambda: dict(HEADER))
    opened: list[dict[str, int]] = field(default_factory=list)
    length_us: int = 0
    gpus: Sample = field(default_factory=lambda: items.gpus(START, 0))

    def starts(self, pid: int = MAIN, at: int = 0, maker: int = 0) -> None:
        """A process whose first instruction was seen; ``maker`` is the thread that forked it."""
        if maker:
            fork = items.event(Kind.FORK, START + at * US, pid=pid, tid=pid, next_pid=maker, next_tid=maker)
            self.records.append(fork)
        else:
            self.records.append(items.event(Kind.EXEC, START + at * US, pid=pid, tid=pid))
        self.samples.append(items.process(pid, START, parent_pid=maker, cuda_visible_devices=None))

    def thread(self, tid: int, pid: int = MAIN, at: int = 0, maker: int = MAIN) -> None:
        """A thread's birth."""
        birth = items.event(Kind.FORK, START + at * US, pid=pid, tid=tid, next_pid=pid, next_tid=maker)
        self.records.append(birth)

    def ends(self, at: int, pid: int = MAIN) -> None:
        """The last thread of a process ends."""
        end = items.event(Kind.EXIT, START + at * US, pid=pid, tid=pid, flags=ExitFlag.GROUP_DEAD)
        self.records.append(end)

    def call(self, op: str, begin: int, end: int, **more: int) -> None:
        """A call; ``kind`` is the copy's direction, ``abandoned`` one that never returned."""
        more = {"tid": more.get("pid", MAIN), **more}
        kind, abandoned = more.pop("kind", 0), more.pop("abandoned", 0)
        if op == LAUNCH:
            more.setdefault("aux", KERNEL)
        record = items.call(START + end * US, (end - begin) * US, op, **more)
        record["flags"] |= np.uint16(kind << COPY_SHIFT)
        if abandoned:
            record["flags"] |= np.uint16(CallFlag.ABANDONED)
        self.records.append(record)

    def off(self, begin: int, end: int, queued: int | None = None, **more: int) -> None:
        """Off the CPU; from ``queued`` on in a run queue (None: it ran as soon as it was woken)."""
        more = {"tid": more.get("pid", MAIN), "op": FUTEX, **more}
        waiting = end - (end if queued is None else queued)
        flags = more.pop("flags", 0)
        record = items.off(START + end * US, (end - begin - waiting) * US, waiting * US, **more)
        record.view(ALIASED)["flags"] |= np.uint16(flags)
        self.records.append(record)

    def preempted(self, begin: int, end: int, **more: int) -> None:
        """Off the CPU, ready to run all the time."""
        self.off(begin, end, begin, flags=int(OffFlag.QUEUED | OffFlag.INVOLUNTARY), **more)

    def batch(self) -> Records:
        """All records as they are read: by time, numbered on each CPU."""
        every = items.joined(self.records)
        every = every[np.argsort(every["t_end"], kind="stable")]
        for cpu in np.unique(every["cpu"]).tolist():
            mine = every["cpu"] == cpu
            every["seq"][mine] = np.arange(1, np.count_nonzero(mine) + 1)
        return every

    def evidence(self, dropped: list[int] | None = None) -> Evidence:
        """What the analysis gets; ``dropped`` are places in ``batch()`` that were lost."""
        gatherer = Gatherer(self.header)
        every = self.batch()
        end = max(int(every["t_end"].max()), START + self.length_us * US)
        kept = np.delete(every, dropped) if dropped else every
        stream = [
            items.apis(),
            *self.samples,
            self.gpus,
            kept,
            items.still_open(end, self.opened),
            items.mark(1, end),
        ]
        for item in stream:
            gatherer.feed(item)
        return assemble(gatherer)

    def analysis(self, dropped: list[int] | None = None) -> Analysis:
        """Gaps and leaves over the whole recording."""
        evidence = self.evidence(dropped)
        return analyse(evidence, (START, evidence.end_ns))

    def report(self, stretch: tuple[int, int] | None = None) -> Report:
        """What ``gputop explain`` tells; ``stretch`` in microseconds."""
        cut = None if stretch is None else (START + stretch[0] * US, START + stretch[1] * US)
        return explain(self.evidence(), None, cut)

    def gaps(self, *, proved: bool = True) -> list[tuple[int, int]]:
        """(begin, end) of the gaps, in microseconds."""
        gaps = self.analysis().gpu.gaps
        rows = zip(gaps.begin.tolist(), gaps.end.tolist(), gaps.proved.tolist(), strict=True)
        return [((low - START) // US, (high - START) // US) for low, high, sure in rows if sure == proved]


def started() -> Program:
    """A program of one process, seen from its first instruction on."""
    program = Program()
    program.starts()
    return program


def closed_by(op: str, **more: int) -> Program:
    """Work on the legacy stream, one call from 100 to 1000 us, work again at 3000."""
    program = started()
    program.call(LAUNCH, 0, 10)
    program.call(op, 100, 1000, **more)
    program.call(LAUNCH, 3000, 3010)
    return program


def with_streams() -> Program:
    """Two streams, of which one does not wait for the legacy default stream."""
    program = started()
    program.call("cudaStreamCreate", 0, 1, stream=BLOCKING)
    program.call("cudaStreamCreateWithFlags", 2, 3, stream=FREE, aux=1)
    return program


def attached(program: Program) -> Program:
    """The same, seen from some moment on only: it ran before the recording."""
    late = []
    for record in program.records:
        if record["kind"][0] == Kind.EXEC:
            record = record.copy()
            record["kind"] = Kind.JOIN
        late.append(record)
    return replace(program, records=late)


def steps_of(analysis: Analysis, pid: int) -> int:
    """How many steps a process has."""
    steps = AttributionContext(analysis).steps_of(pid)
    return 0 if steps is None else steps.count
