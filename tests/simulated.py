"""A host and its GPU in virtual time: loops written as deeds, run with any of them left out.

Written from how a stream works and from nothing of gputop's: an operation begins when the host has given it
and the one before it has ended. Each kernel's duration is known, and so is what NVML would have seen. Times
are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from probes import api
from probes.schema import COPY_SHIFT, Kind, empty
from probes.source import GPUS, Sample
from tests import programs as p
from tests.items import START
from tests.programs import MAIN, US, Program, started

START_US = 3  # from a launch's return to the kernel's begin
FETCHED = 12_000  # bytes that come to pageable memory of the host in a microsecond
STAGED = 8_000  # bytes that the CPU moves in a microsecond into the driver's buffers
SECOND = 1_000_000
Ints = npt.NDArray[np.int64]
POOL = 1 << 40  # where the tensors of the host lie


@dataclass(frozen=True)
class Deed:
    """What the host does once.

    Attributes:
        kind: ``host`` (Python), ``preempted`` (another has its CPU), ``locked`` (another thread of its
            process has a lock), ``launch``, ``beside`` (a launch in another stream, for which nobody
            waits), ``sync``, ``read`` (a few bytes to the host, and the wait for them), ``fetch`` (many),
            ``send`` (from pageable memory, and the wait), ``malloc``.
        us: Of the host; of a launch the kernel's duration.
        number: Which kernel it is.
        size: Bytes of a copy.
        cause: What it is there for: a loop can be run without.
    """

    kind: str
    us: int = 0
    number: int = 0
    size: int = 0
    cause: str = ""


@dataclass
class Machine:
    """Runs deeds and notes what a probe would have seen of them."""

    program: Program = field(default_factory=started)
    now: int = 0
    done: int = 0
    beside: int = 0  # when the other stream is done
    kernels: list[tuple[int, int]] = field(default_factory=list)
    moved: list[tuple[int, int]] = field(default_factory=list)
    lead: int = 5  # what each call takes the host
    first: int = 0  # when the host came to give the GPU something for the first time
    calls: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)

    def run(self, deeds: Iterable[Deed], without: str = "-") -> int:
        """Does everything but what is there for that cause; returns when host and GPU are done."""
        for deed in deeds:
            if deed.cause != without:
                getattr(self, f"_{deed.kind}")(deed)
        return self.length

    def _call(
        self, op: str, until: int, aux: int = 0, size: int = 0, copies: int = 0, stream: int = 0
    ) -> None:
        row = (self.now, until, api.OP_OF[op], aux, size, copies << COPY_SHIFT, stream)
        self.calls.append(row)
        self.now = until + 1

    def _give(self, us: int, into: list[tuple[int, int]], at: int) -> None:
        begin = max(at + START_US, self.done)
        self.done = begin + us
        into.append((begin, self.done))

    def _host(self, deed: Deed) -> None:
        self.now += deed.us

    def _preempted(self, deed: Deed) -> None:
        self.program.preempted(self.now, self.now + deed.us)
        self.now += deed.us

    def _locked(self, deed: Deed) -> None:
        """Another thread of the process, 11, holds the lock; then for ``number`` us there is no CPU."""
        until = self.now + deed.us
        self.program.off(self.now, until + deed.number, until, waker_pid=MAIN, waker_tid=11)
        self.now = until + deed.number

    def _launch(self, deed: Deed) -> None:
        end = self.now + self.lead
        self._call(p.LAUNCH, end, aux=p.KERNEL + deed.number)
        self._give(deed.us, self.kernels, end)

    def _beside(self, deed: Deed) -> None:
        if not self.beside:
            self._call("cudaStreamCreateWithFlags", self.now + 2, 1, stream=p.FREE)
        end = self.now + self.lead
        self._call(p.LAUNCH, end, p.KERNEL + deed.number, stream=p.FREE)
        begin = max(end + START_US, self.beside)
        self.beside = begin + deed.us
        self.kernels.append((begin, self.beside))

    def _sync(self, _deed: Deed) -> None:
        self._call(p.SYNC, max(self.now + 2, self.done + 5))

    def _read(self, deed: Deed) -> None:
        end = self.now + self.lead
        self._call(p.COPY_ASYNC, end, POOL, deed.size or 4, p.D2H)
        self._give(2, self.moved, end)
        self._call(p.SYNC, max(self.now + 2, self.done + 5))

    def _fetch(self, deed: Deed) -> None:
        """The call waits for the work before it, and for the copy to pageable memory."""
        begin = max(self.now + START_US, self.done)
        self.done = begin + deed.size // FETCHED
        self.moved.append((begin, self.done))
        self._call(p.COPY_ASYNC, self.done + 2, POOL, deed.size, p.D2H)
        self._call(p.SYNC, self.now + 2)

    def _send(self, deed: Deed) -> None:
        """The call waits for the work before it, then the CPU stages."""
        begin = max(self.now + 2, self.done)
        end = begin + max(deed.size // STAGED, 2)
        self._call(p.COPY_ASYNC, end, POOL, deed.size, p.H2D)
        self._give(2, self.moved, end)
        self._call(p.SYNC, max(self.now + 2, self.done + 5))

    def _malloc(self, deed: Deed) -> None:
        self._call("cudaMalloc", self.now + deed.us, size=1 << 20)

    @property
    def length(self) -> int:
        """When host and GPU are done."""
        return max(self.now, self.done, self.beside)

    def finished(self) -> Program:
        """The program, as long as it ran, with all its calls."""
        begin, end, op, aux, size, flags, stream = np.array(self.calls, np.int64).reshape(-1, 7).T
        records = empty(len(begin))
        records["t_end"], records["duration"] = START + end * US, (end - begin) * US
        for name, value in {
            "op": op,
            "aux": aux,
            "bytes": size,
            "flags": flags,
            "stream": stream,
        }.items():
            records[name] = value
        gives = np.isin(op, [api.OP_OF[one] for one in (p.LAUNCH, p.COPY_ASYNC)])
        self.first = int(begin[gives][0])
        records["pid"], records["tid"], records["kind"] = MAIN, MAIN, Kind.CALL
        self.program.records.append(records)
        self.calls = []
        self.program.length_us = self.length + 10
        return self.program

    def ran(self, begin: int, end: int) -> int:
        """For how long a kernel ran between two times."""
        return int(_inside(self.kernels, np.array([begin]), np.array([end]))[0])

    def idle(self, begin: int, end: int) -> int:
        """For how long neither a kernel nor a copy was under way between two times."""
        busy = self.kernels + self.moved
        return end - begin - int(_inside(busy, np.array([begin]), np.array([end]))[0])

    def utilization(self, window: int, lag: int = 0, every: int = SECOND // 4) -> None:
        """NVML's utilisation as a reader gets it: of the last whole window, which ended some time ago."""
        at = np.arange(every, self.length, every)
        end = np.maximum((at - lag) // window, 0) * window
        ran = _inside(self.kernels, end - window, end)
        for moment, share in zip(at.tolist(), (ran / window).tolist(), strict=True):
            self.nvml(moment, utilization_percent=round(100 * share))

    def nvml(self, at: int, **figures: Any) -> None:
        """One sample of the GPU's figures."""
        row = {"index": 0, "uuid": "u", "name": "GPU", **figures}
        self.program.samples.append(Sample(GPUS, START + at * US, {"gpus": [row]}))


def _inside(busy: list[tuple[int, int]], begin: Ints, end: Ints) -> Ints:
    """How much of work, in one stream or in several, lies in each [begin, end)."""
    low, high = np.array(sorted(busy), np.int64).reshape(-1, 2).T
    # what runs at the same time counts once
    reach = np.append(0, np.maximum.accumulate(high)[:-1]) if len(high) else high
    low, high = np.maximum(low, reach), np.maximum(high, reach)
    total = np.append(0, np.cumsum(high - low))

    def before(moments: Ints) -> Ints:
        place = np.searchsorted(low, moments)
        beyond = np.maximum(np.append(0, high)[place] - moments, 0)
        return np.asarray(total[place] - np.where(place > 0, beyond, 0), np.int64)

    return before(end) - before(begin)


def launches(us: Iterable[int], first: int = 0, cause: str = "") -> list[Deed]:
    """Kernels of these durations, each another one."""
    return [Deed("launch", one, first + number, cause=cause) for number, one in enumerate(us)]
