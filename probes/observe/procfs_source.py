"""The source without eBPF: the kernel's counters of threads, and NVML. Needs no rights.

At each mark it reads the counters of every watched thread from procfs (docs/session-format.md, kind
``counters``). Calls are not known this way, nor which thread had a CPU that others waited for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

from probes.code import libraries
from probes.ebpf import rights
from probes.nvml import nvml
from probes.observe.live_source import FIRST_MARK_S
from probes.observe.plan import LivePlan
from probes.observe.tick_samples import header_facts, mark_data
from probes.proc import procfs
from probes.proc.gpu_clients import GpuClients
from probes.proc.host import HostFigures
from probes.proc.machine_losses import MachineEvents
from probes.proc.page_faults import PageFaults
from probes.proc.resident import ResidentMemory
from probes.process import privileges
from probes.process.realtime import Latch
from probes.schema import LOSS_KINDS
from probes.source import COUNTERS, GPUS, MARK, NAMES, PROBLEM, PROCESS, Item, Sample

_SPARE_NAMES = 1024  # of threads that have ended
SEARCH_S = 1.0  # how often processes are searched for
_COLUMNS = (
    "pid", "tid", "born_ns", "state", "on_cpu_ns", "run_delay_ns", "voluntary", "involuntary",
)  # fmt: skip


class _Finder:
    """Finds the processes to watch: requested, listed by NVML, or with a CUDA library; and descendants.

    Args:
        pids: Requested processes; None for every one that uses CUDA.
    """

    def __init__(self, pids: tuple[int, ...] | None) -> None:
        self._pids = pids
        self._sizes: dict[int, bytes] = {}  # pid -> memory map as of the last look
        self._own = os.getpid()

    def find(self, watched: Iterable[int], listed: Iterable[int]) -> set[int]:
        """Every process that is to be watched now; ``watched`` are those that are already.

        Args:
            watched: Their descendants are found too.
            listed: Processes that NVML lists; not used when processes were requested.
        """
        parents = {pid: start[0] for pid in libraries.all_pids() if (start := procfs.start_of(pid))}
        named = self._pids if self._pids is not None else (*listed, *self._users(parents))
        wanted = {*watched, *named}
        children: dict[int, list[int]] = {}
        for pid, parent in parents.items():
            children.setdefault(parent, []).append(pid)
        found: set[int] = set()
        queue = [pid for pid in wanted if pid in parents]
        while queue:
            pid = queue.pop()
            if pid not in found and pid != self._own:
                found.add(pid)
                queue += children.get(pid, ())
        return found

    def _users(self, pids: Iterable[int]) -> Iterator[int]:
        """Processes with a CUDA library; maps are read again only after they have grown or shrunk."""
        sizes: dict[int, bytes] = {}
        for pid in pids:
            size = procfs.memory_size(pid)
            if size is None:
                continue
            sizes[pid] = size
            if size != self._sizes.get(pid) and libraries.maps_cuda(pid):
                yield pid
        self._sizes = sizes


class _Watched:
    """One process: its facts as last reported, its threads as last seen."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns  # since boot: differs where the number belongs to another process by now
        self.facts: dict[str, Any] = {}
        self.threads: set[int] | None = None


class ProcfsSource:
    """As LiveSource, with counters instead of records; it needs no rights and always starts.

    Args:
        plan: The plan; ``ring_bytes``, ``environment`` and ``interpreters`` do not count here.
        reason: Why there is no eBPF, and the next step, in one sentence: the first problem of each frame.
    """

    def __init__(self, plan: LivePlan, reason: str) -> None:
        self._plan = plan
        self._stop = Latch()
        self._own = procfs.OwnUse()
        self._sampler: nvml.NvmlSampler | None = None
        self._problems = [reason, *plan.problems]
        self._finder = _Finder(plan.pids)
        self._watched: dict[int, _Watched] = {}
        self._names: dict[int, str] = {}
        self._clients = GpuClients()
        self._faults = PageFaults()
        self._resident = ResidentMemory()
        self._started_ns = 0
        self._searched_ns = 0
        self._number = 0
        self._header: dict[str, Any] = {}
        self._first_look: list[Sample] = []

    def start(self) -> None:
        """Starts NVML and reads the counters with which the first mark is compared, before a command runs."""
        self._started_ns = time.monotonic_ns()
        self._faults = PageFaults(self._started_ns)
        try:
            own = self._plan.also_needs is not None
            sampler = nvml.NvmlSampler(1 / self._plan.rate_hz, self._plan.nvml_library, confined=own)
            sampler.wait_opened(nvml.OPEN_S)
            self._sampler = sampler
        except nvml.NvmlError as error:
            self._problems.append(f"no GPU figures: {error}")
        if self._plan.also_needs is not None:
            kept = privileges.confine_process(privileges.OBSERVING | self._plan.also_needs)
            self._problems += [kept] if kept else []
        self._problems += _blind_spots()
        self._header = {
            **header_facts(self._plan, self._started_ns, self._sampler),
            "calls_observed": False,
            "libraries": [],
        }
        if self._sampler is not None:
            self._sampler.wait_first(0.1)
        self._first_look = list(self._look(time.monotonic_ns()))

    @property
    def header(self) -> dict[str, Any]:
        """Facts that hold for the whole session; complete after ``start``."""
        return self._header

    @property
    def alive(self) -> list[int]:
        return list(self._watched)

    def items(self) -> Iterator[Item]:
        """Samples until ``close``; the last item is a mark."""
        for text in self._problems:
            yield Sample(PROBLEM, self._started_ns, {"text": text})
        yield from self._first_look
        machine, host = MachineEvents(), HostFigures(time.monotonic_ns())
        period = 1 / self._plan.rate_hz
        deadline = time.monotonic() + min(period, FIRST_MARK_S)
        stopping = False
        while not stopping:
            stopping = self._stop.wait(max(deadline - time.monotonic(), 0))
            now = time.monotonic_ns()
            yield from self._look(now, last=stopping)
            yield from machine.samples(now, last=stopping)
            yield from host.samples(now)
            self._number += 1
            mark = mark_data(self._number, now, self._own, [0] * len(LOSS_KINDS))
            yield Sample(MARK, now, {**mark, "begun": 0, "read": 0})
            deadline = max(deadline + period, time.monotonic())
        self.abandon()

    def close(self) -> None:
        """Requests ``items`` to end after a last mark; handlers of signals may."""
        self._stop.set()

    @property
    def probed(self) -> int:
        return 0

    def ready(self) -> None:
        """Nothing is loaded in the background."""

    def abandon(self) -> None:
        self._stop.set()
        if self._sampler is not None:
            self._sampler.close()

    # -- looking ----------------------------------------------------------------------------

    def _look(self, now: int, *, last: bool = False) -> Iterator[Sample]:
        gpus = self._sampler.latest() if self._sampler else None
        yield from self._bury(now)
        if not self._searched_ns or now - self._searched_ns >= SEARCH_S * 1e9:
            self._searched_ns = now
            yield from self._search(now, gpus)
        yield from self._count(now)
        yield from self._faults.samples(self._watched, now, last=last)
        yield from self._resident.samples(self._watched, now, self._clients.pids)
        if gpus is not None:
            yield from self._clients.samples(gpus, self._watched, now)
            yield Sample(GPUS, gpus.time_ns, gpus.data)

    def _bury(self, now: int) -> Iterator[Sample]:
        for pid, process in list(self._watched.items()):
            start = procfs.start_of(pid)
            if start is None or start[1] != process.start_ns:
                del self._watched[pid]
                yield Sample(PROCESS, now, {"pid": pid, "watched": True, "exited_ns": now})

    def _search(self, now: int, gpus: Sample | None) -> Iterator[Sample]:
        for pid in sorted(self._finder.find(self._watched, _listed(gpus))):
            facts = procfs.process_facts(pid)
            if facts is None:
                continue
            process = self._watched.setdefault(pid, _Watched(facts["start_ns"]))
            if facts != process.facts:  # new, or it has become another program
                process.facts = facts
                yield Sample(PROCESS, now, {**facts, "watched": True, "seen_ns": now, "exited_ns": None})

    def _count(self, now: int) -> Iterator[Sample]:
        rows: list[tuple[int | str, ...]] = []
        fresh: dict[int, tuple[int, str]] = {}
        for pid, process in self._watched.items():
            tids = procfs.threads(pid)
            for tid in tids:
                counters = procfs.thread_counters(pid, tid)
                if counters is None:
                    continue
                if self._names.get(tid) != counters.name:
                    self._names[tid] = counters.name
                    fresh[tid] = (pid, counters.name)
                born = self._born(pid, tid, process, now)
                times = (counters.on_cpu_ns, counters.run_delay_ns)
                rows.append(
                    (pid, tid, born, counters.state, *times, counters.voluntary, counters.involuntary)
                )
            process.threads = set(tids)
        if len(self._names) > 2 * len(rows) + _SPARE_NAMES:
            living = {tid for process in self._watched.values() for tid in process.threads or ()}
            self._names = {tid: name for tid, name in self._names.items() if tid in living}
        if fresh:
            names = {"pid": [pid for pid, _ in fresh.values()], "name": [name for _, name in fresh.values()]}
            yield Sample(NAMES, now, {"tid": list(fresh), **names})
        columns = zip(*rows, strict=True) if rows else ([] for _ in _COLUMNS)
        yield Sample(
            COUNTERS, now, {name: list(column) for name, column in zip(_COLUMNS, columns, strict=True)}
        )

    def _born(self, pid: int, tid: int, process: _Watched, now: int) -> int:
        """When a thread that is new began; 0 when it was there before it was watched."""
        if process.threads is not None and tid in process.threads:
            return 0
        start = procfs.start_of(pid, tid)
        began = start[1] - procfs.boot_offset_ns() if start else 0
        # procfs counts in hundredths of a second: a start is up to that much earlier than its figure
        return min(began, now) if began >= self._started_ns else 0


def _listed(gpus: Sample | None) -> set[int]:
    """Processes that NVML lists as computing."""
    rows = gpus.data["gpus"] if gpus is not None else []
    return {int(pid) for row in rows for pid, _ in row["processes"] or ()}


def _blind_spots() -> list[str]:
    """Sentences about processes that procfs does not show here."""
    reasons = []
    facts = rights.read_rights()
    if facts.hidepid and not facts.root:
        reasons.append(
            "/proc hides the processes of other users (hidepid): only yours are seen; "
            "for all: mount -o remount,hidepid=0 /proc"
        )
    if not procfs.has_run_delays():
        reasons.append(
            "this kernel keeps no run-queue delays (/proc/PID/schedstat, CONFIG_SCHED_INFO): "
            "time in run queues is shown as blocked"
        )
    return reasons
