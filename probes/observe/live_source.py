"""The live source: eBPF records and slow samples of this machine, in order, closed by marks."""

from __future__ import annotations

import contextlib
import os
import platform
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from probes import api, schema
from probes.code import interpreter, libraries, parsing
from probes.ebpf import attach_perf, attacher, bpfcall, loader
from probes.ebpf.bpf_ring import Ring
from probes.ebpf.degradation import Reach
from probes.files import file_reader
from probes.files.shared_pages import SharedPages
from probes.inside.annotation_socket import AnnotationSocket
from probes.inside.annotations import Annotations
from probes.inside.hearing import Hearing
from probes.inside.intake import Inside
from probes.nvml import nvml
from probes.observe.plan import LivePlan
from probes.observe.ring_polling import PollInterval
from probes.observe.scanner import Scanner
from probes.observe.scope import Scope
from probes.observe.tick_samples import cut_lists, header_facts, mark_data, open_sample
from probes.proc import procfs
from probes.proc.gpu_clients import GpuClients
from probes.proc.host import HostFigures
from probes.proc.machine_losses import MachineEvents
from probes.proc.open_files import OpenFiles
from probes.proc.page_faults import PageFaults
from probes.proc.resident import ResidentMemory
from probes.proc.roster import Roster
from probes.process import privileges, realtime
from probes.process.realtime import Latch
from probes.samples import sample_data
from probes.shapes import notice_shapes
from probes.source import APIS, GPUS, MARK, NOTE, PLACES, PROBLEM, Item, Sample
from probes.stacks import programs as line_programs
from probes.stacks.line_tracker import Lines

_LOADING_S = 0.3  # wait at the end for parts that are still loading
_LAST_WAIT_S = 0.2  # for a record that is being written at the last mark
_NO_INTERRUPTS = (
    "this kernel does not say where its preemption count is: a wakeup by an interrupt that hit a running "
    "thread names that thread as the waker"
)
FIRST_MARK_S = 0.1  # so that there is something to see soon


class LiveSource:
    """Loads, attaches and reads. Use ``start``, iterate ``items`` in one thread, ``close`` from any.

    Raises (``start``):
        loader.ProbeError: Live tracing is not possible here; the message has the reason.
    """

    def __init__(self, plan: LivePlan) -> None:
        self._plan = plan
        self._stop = Latch()
        self._started_ns = time.monotonic_ns()
        self._header: dict[str, Any] = {}
        self._own = procfs.OwnUse()
        self._sampler: nvml.NvmlSampler | None = None
        known = [Sample(PROBLEM, self._started_ns, {"text": text}) for text in plan.problems]
        self._pending = deque(known)  # the scanner's thread adds to it
        self._read = 0
        self._number = 0
        self._roster = Roster()
        self._clients = GpuClients()
        self._files = OpenFiles(platform.machine())
        self._faults = PageFaults()
        self._resident = ResidentMemory()
        self._detached = False
        self._lines: Lines | None = None
        self._hearing: Hearing | None = None
        self._inside = Inside(self._pending.append)
        self._annotations, self._named = None, Annotations()
        if plan.annotations is not None:
            self._annotations = AnnotationSocket(plan.annotations, self._named.consume)
        self._reader = file_reader.current()
        self._loading: threading.Thread | None = None

    # -- starting ---------------------------------------------------------------------------

    def start(self) -> None:
        """Loads the programs, attaches them, starts NVML: 0.3 s. See ``ready`` for the rest."""
        self._installed = list(libraries.installed(self._plan.environment, self._plan.interpreters))
        self._ahead = parsing.look_ahead(self._installed, self._plan.program)
        own = self._plan.also_needs is not None
        self._sampler = nvml.NvmlSampler(1 / self._plan.rate_hz, self._plan.nvml_library, confined=own)
        try:
            self._start_probes()
        except (loader.ProbeError, OSError) as error:
            file_reader.stop()
            self._sampler.close()
            if isinstance(error, OSError):
                raise loader.ProbeError(f"the probes did not start: {loader.refusal(error)}") from error
            raise

    def _start_probes(self) -> None:
        plan = self._plan
        options = loader.Options(plan.pids is None, plan.ring_bytes, os.getpid(), plan.lines)
        with contextlib.ExitStack() as undo:
            self._programs = programs = loader.load(options)
            undo.callback(programs.module.close)
            early = None
            if plan.lines != "off" and not plan.lines_later:
                with contextlib.suppress(loader.ProbeError):  # tried again below, for the reason
                    early = line_programs.load(programs)
            self._ring = Ring(programs.maps["events"], self._plan.ring_bytes)
            self._threads = bpfcall.BatchReader(programs.maps["threads"], 4, schema.THREAD_STATE_DTYPE)
            self._cpus = bpfcall.BatchReader(programs.maps["cpus"], 4, schema.CPU_STATE_DTYPE)
            self._attachments = attacher.Attachments(programs)
            undo.callback(self._attachments.close)
            pages = SharedPages()
            if plan.also_needs is not None:  # before any file or memory of others is read
                needed = privileges.OBSERVING | plan.also_needs
                if kept := privileges.confine_process(
                    needed | self._attachments.beyond(needed), daemon=plan.daemon
                ):
                    self._pending.append(Sample(NOTE, time.monotonic_ns(), {"text": kept}))
            file_reader.end_idle()
            if reduced := self._attachments.reduced:
                self._pending.append(Sample(PROBLEM, time.monotonic_ns(), {"text": reduced}))
            if not programs.observes["interrupts"]:
                self._pending.append(Sample(NOTE, time.monotonic_ns(), {"text": _NO_INTERRUPTS}))
            for pid in self._plan.pids or ():
                self.watch(pid)
            self._attachments.attach_scheduler()
            # their earlier forks; looked for after the fork tracepoint is attached: none slips through
            descendants = procfs.descendants(self._plan.pids or ()) - {os.getpid()}
            for pid in descendants:
                self._admit(pid)
            self._scope = Scope(self._attachments, sessions=programs.sessions)
            self._pending.extend(self._scope.begin(self._plan.pids or (), descendants))
            # from here on records may come: with perf events seconds pass until the last library is attached
            self._started_ns = time.monotonic_ns()
            self.attach_libraries(pages)
            if plan.inside is not None:
                self._hearing = Hearing(programs, self._attachments, plan.inside)
            if self._lines is not None and early is not None:
                self._lines.load(early)
                self._lines.turn(libraries.all_pids)
            elif self._lines is not None:
                self._loading = threading.Thread(target=self._lines.load, name="gputop-lines", daemon=True)
                self._loading.start()
            self._await_nvml()
            self._header = self._make_header()
            scan = threading.Thread(
                target=self._scanner.run, args=(self._stop,), name="gputop-libraries", daemon=True
            )
            scan.start()
            if self._annotations is not None:
                self._annotations.start()
            undo.pop_all()

    def ready(self) -> None:
        """Waits for parts that load in the background: lines of calls are known from then on."""
        if self._lines is not None:
            self._lines.wait()

    def _await_nvml(self) -> None:
        """Waits for NVML, which starts beside the probes; if it hangs, only its figures are late."""
        assert self._sampler is not None
        try:
            self._sampler.wait_opened(nvml.OPEN_S)
        except nvml.NvmlError as error:
            self._sampler = None
            self._pending.append(Sample(PROBLEM, time.monotonic_ns(), {"text": f"no GPU figures: {error}"}))

    def _make_header(self) -> dict[str, Any]:
        return {
            **header_facts(self._plan, self._started_ns, self._sampler),
            "own_pid": os.getpid(),
            "ring_bytes": self._plan.ring_bytes,
            "attach": "multi" if self._programs.multi else "perf",
            "tells": dict(self._programs.observes),
            "addresses": True,
            "graphs": True,
            "lines": self._plan.lines,
            "inside": self._plan.inside is not None,
            "libraries": [entry.facts for entry in self._attachments.attached],
        }

    @property
    def header(self) -> dict[str, Any]:
        """Facts that hold for the whole session; complete after ``start``."""
        return self._header

    def watch(self, pid: int) -> None:
        """Adds a process to the watched set; its later forks join by themselves."""
        self._admit(pid)
        self._faults.add(pid)
        self._roster.add(pid)

    def _admit(self, pid: int) -> None:
        """Lets the threads of a process join with their next switch or call."""
        try:
            self._programs.admit(pid)
        except OSError as error:
            raise loader.ProbeError(f"process {pid} cannot be watched: {error.strerror}") from error

    def wanted(self, pid: int) -> bool:
        """True if a process's libraries count; the kernel knows children before their records are read."""
        if self._plan.pids is None:
            return pid != os.getpid()
        try:
            return bpfcall.contains(self._programs.maps["procs"], struct.pack("<I", pid), 4)
        except OSError:
            return False

    def attach_libraries(self, pages: SharedPages) -> None:
        plan, report = self._plan, self._pending.append
        if plan.lines != "off":
            pythons = interpreter.installed(plan.environment, plan.interpreters, plan.program)
            self._lines = Lines(self._attachments, self._programs, self.wanted, report, pythons)
        self._scanner = Scanner(
            self._attachments,
            self._lines,
            self.wanted,
            self._roster.alive,
            report,
            everyone=plan.pids is None,
            pages=pages,
        )
        self._ahead.join()  # each file in it has its time
        installed: Iterable[libraries.Target] = self._installed
        if not self._programs.multi:
            installed = attach_perf.first_of_each(installed)
        self._scanner.begin(loader.max_cpus(), installed, plan.program)

    # -- reading ----------------------------------------------------------------------------

    @property
    def alive(self) -> list[int]:
        return self._roster.alive()

    @property
    def probed(self) -> int:
        """How many functions are traced, of all libraries."""
        return sum(entry.symbols for entry in self._attachments.attached)

    def items(self) -> Iterator[Item]:
        """Records and samples until ``close``; the last item is a mark.

        Raises:
            loader.ProbeError: The system refuses a necessary operation.
        """
        try:
            yield from self._items()
        except OSError as error:
            text = f"observing stopped: a system call failed ({loader.refusal(error)}); see gputop check"
            raise loader.ProbeError(text) from error

    def _items(self) -> Iterator[Item]:
        realtime.hurry()
        machine, host = MachineEvents(), HostFigures(time.monotonic_ns())
        self._own = procfs.OwnUse()  # from here on: loading the probes is no observing
        rows = [[api.name, api.layer, api.group] for api in api.BY_OP]
        yield Sample(APIS, self._started_ns, {"rows": rows})
        if self._sampler is not None:
            self._sampler.wait_first(0.1)
        period = 1 / self._plan.rate_hz
        deadline = time.monotonic() + min(period, FIRST_MARK_S)
        pace = PollInterval(self._plan.poll_s)
        stopping = False
        while not stopping:
            for pause in pace.pauses(deadline, lambda: self._ring.fill):
                if self._stop.wait(pause):
                    break
            stopping = self._stop.is_set()
            if stopping or time.monotonic() >= deadline:
                yield from machine.samples(time.monotonic_ns(), last=stopping)
                yield from host.samples(time.monotonic_ns())
                yield from self._mark(last=stopping)
                deadline = max(deadline + period, time.monotonic())
            else:
                yield from self._drain()
                self._hear()
                if self._lines is not None:
                    self._lines.relieve()
            pace.born(self._roster.births)
        self._detach()
        self._ring.close()
        if self._lines is not None:
            self._lines.close()
        if self._hearing is not None:
            self._hearing.close()

    def _hear(self) -> None:
        """Consumes messages of programs."""
        if self._hearing is not None:
            for record in self._hearing.read():
                self._inside.hear(record)

    def _named_samples(self, mark_ns: int, *, last: bool) -> Iterator[Sample]:
        """Ranges that came over the socket."""
        if self._annotations is not None:
            self._annotations.read_now()  # all that ended processes sent
            yield from self._named.at_mark(mark_ns, self._roster.alive(), self._roster.ended, last=last)
        self._roster.ended.clear()

    def _drain(self) -> Iterator[Item]:
        """The ring's records up to now; later ones wait for the next time."""
        left = self._ring.backlog_bytes // schema.STRIDE_BYTES
        while left > 0:
            records = self._ring.read()
            if not len(records):
                return
            left -= len(records)
            self._read += len(records)
            self._files.notice(records)
            self._faults.notice(records)
            yield from self._scope.notice(records)
            yield from self._roster.notice(records, self._scope.seen_from_ns)
            yield from notice_shapes(records)
            if self._lines is not None:
                self._lines.kernels.notice(records)
            if self._hearing is not None:
                self._hear()  # first: a program that has ended sent its messages before these records
                self._inside.notice(records)
            yield records

    def _drain_until(self, mark_ns: int, later: list[Item]) -> Iterator[Item]:
        """As ``_drain``; records that ended after the mark belong to the next tick and go to ``later``."""
        for item in self._drain():
            if isinstance(item, Sample):
                if item.time_ns <= mark_ns:
                    yield item
                else:
                    later.append(item)
                continue
            before = item["t_end"] <= mark_ns
            if before.all():
                yield item
            else:
                yield schema.select(item, before)
                later.append(schema.select(item, ~before))

    def _mark(self, *, last: bool) -> Iterator[Item]:
        states = self._threads.read()
        mark_ns = time.monotonic_ns()
        later: list[Item] = []
        yield from self._drain_until(mark_ns, later)
        deadline = time.monotonic() + _LAST_WAIT_S
        while last and not later and self._ring.backlog_bytes and time.monotonic() < deadline:
            # a program was preempted while it wrote: no next tick could have its record
            time.sleep(0.001)
            yield from self._drain_until(mark_ns, later)
        yield from self._scope.at_mark(states)
        yield from self._roster.facts(states, mark_ns)
        if self._lines is not None:
            for sample in self._lines.drain(mark_ns, last=last):
                if (places := sample_data(sample, PLACES)) is not None:
                    self._files.notice_samples(places)
                yield sample
        yield from self._files.samples(states, mark_ns)
        yield from self._faults.samples(self._roster.alive(), mark_ns, last=last)
        yield from self._resident.samples(self._roster.alive(), mark_ns, self._clients.pids)
        yield from cut_lists(mark_ns)
        while self._reader is not None and self._reader.problems:
            yield Sample(PROBLEM, mark_ns, {"text": self._reader.problems.popleft()})
        gpus = self._sampler.latest() if self._sampler else None
        activities: list[int] = []
        if self._hearing is not None:
            self._hear()
            yield from self._inside.at_mark(mark_ns, gpus, last=last)
            activities = self._inside.mark_counts()
        yield from self._named_samples(mark_ns, last=last)
        count, since = self._named.rows_since_mark()
        if activities:
            activities = [activities[0] + count, activities[1]]
        elif count:
            activities = [count, since]
        while self._pending:
            yield self._pending.popleft()
        if gpus is not None:
            yield from self._clients.samples(gpus, frozenset(self._roster.alive()), mark_ns)
            yield Sample(GPUS, gpus.time_ns, gpus.data)
        yield open_sample(states, mark_ns)
        extra = {"activities": activities} if activities else {}
        yield Sample(MARK, mark_ns, self._mark_data(mark_ns) | extra)
        if not last:
            yield from later

    def _mark_data(self, mark_ns: int) -> dict[str, Any]:
        self._number += 1
        cpus = self._cpus.read()
        counted = {"begun": int(cpus["seq"].sum()), "read": self._read}
        return mark_data(self._number, mark_ns, self._own, cpus["lost"].sum(axis=0)) | counted

    def reduce(self, reach: Reach, why: str) -> None:
        """Observes more or less from now on; for any thread.

        Raises:
            loader.ProbeError: The kernel refuses.
        """
        try:
            lost = self._attachments.reduce(reach)
            if reach >= Reach.NO_LINES:
                line_programs.part(self._programs)
            elif self._lines is not None:
                self._lines.resume()
        except OSError as error:
            raise loader.ProbeError(f"probes could not be changed: {loader.refusal(error)}") from error
        now = time.monotonic_ns()
        self._pending.append(Sample(PROBLEM, now, {"text": why, "about": "budget"}))
        self._pending.extend(Sample(NOTE, now, {"text": text}) for text in lost)

    # -- ending -----------------------------------------------------------------------------

    def close(self) -> None:
        """Requests ``items`` to end after a last mark; handlers of signals may. Detaching happens there."""
        self._stop.set()
        if self._lines is not None:
            self._lines.stop()

    def _detach(self) -> None:
        if not self._detached:
            self._detached = True
            if self._loading is not None:
                self._loading.join(_LOADING_S)  # probes that it attaches later are closed at once
            self._attachments.close()
            if self._reader is not None:
                self._reader.close()
            if self._sampler is not None:
                self._sampler.close()
            if self._annotations is not None:
                self._annotations.close()

    def abandon(self) -> None:
        """Detaches without reading on, when ``items`` is iterated no more."""
        self.close()
        self._detach()
