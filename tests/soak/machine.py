"""A machine whose clock runs as fast as gputop reads: a training loop, and processes that come and go.

Its kernel's side is made here: the ring buffer in a file in memory, the states of threads, stacks and code.
All times are those of its clock, in nanoseconds.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from probes import schema
from probes.code.layout import (
    CODE_DTYPE,
    CODE_RECORD,
    FIRST_STACK,
    FRAME_DTYPE,
    LAYOUTS,
    STACK_DTYPE,
    STACK_RECORD,
)
from probes.schema import BLOB, IN_RING, STRIDE_BYTES, ExitFlag, Kind, Records
from tests import items, programs

SECOND, MS = 1_000_000_000, 1_000_000
TICK_NS = 250 * MS  # so much is made at once
FORKS = 2  # a tick
LIVES_NS = 700 * MS
STEP_US, STEPS = 50_000, 5  # of the loop, in a tick
RING_BYTES = 1 << 20
NOBODY = 1 << 22  # from here on no process of this machine has a number
_MOST_NUMBER = 1 << 30
LINE = "at train.py:42 in step()"  # where the loop copies and waits
_MOST_STACKS = 1024
_CALLS_EVERY = 8  # each so many-th process calls CUDA
_PAGE = mmap.PAGESIZE
_LAYOUT = LAYOUTS[12]
_ASCII = 1 << 2 | 1 << 5 | 1 << 6


class Clock:
    """Stands for the module ``time``: it goes on when it is told to; a thread's CPU time is the real one."""

    thread_time = staticmethod(time.thread_time)

    def __init__(self) -> None:
        self.now_ns = time.monotonic_ns()

    def monotonic_ns(self) -> int:
        """Nanoseconds."""
        return self.now_ns

    def time_ns(self) -> int:
        """Nanoseconds of the day."""
        return 1_700_000_000 * SECOND + self.now_ns

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_ns / SECOND

    def sleep(self, seconds: float) -> None:
        """Time goes by."""
        self.now_ns += int(seconds * SECOND)


class KernelRing:
    """The kernel's end of a ring buffer."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("soak-ring", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, 2 * _PAGE + 2 * RING_BYTES)
        self._map = mmap.mmap(self.descriptor, 2 * _PAGE + 2 * RING_BYTES)
        self._positions = [np.frombuffer(self._map, np.uint64, 1, at) for at in (0, _PAGE)]

    def write(self, records: Records) -> None:
        """Puts records behind what is there. There must be room: nothing is lost here."""
        consumer, producer = (int(position[0]) for position in self._positions)
        if producer + len(records) * STRIDE_BYTES - consumer > RING_BYTES:
            raise RuntimeError("the ring is full: the reader does not read")
        rows = np.zeros(len(records), IN_RING)
        rows["header"] = schema.PAYLOAD_BYTES
        rows["record"] = records.view(BLOB)
        data, at = rows.tobytes(), producer % RING_BYTES
        for copy in (0, RING_BYTES, -RING_BYTES):  # the data is there twice in a row
            begin = max(at + copy, 0)
            part = data[begin - at - copy :][: 2 * RING_BYTES - begin]
            self._map[2 * _PAGE + begin : 2 * _PAGE + begin + len(part)] = part
        self._positions[1][0] = producer + len(data)


class StackRing:
    """The second ring buffer, with room for so many records: gputop reads it as it reads its own."""

    def __init__(self) -> None:
        self._records: deque[bytes] = deque()

    @property
    def fill(self) -> float:
        """How full it is, 0 to 1."""
        return len(self._records) / _MOST_STACKS

    def write(self, record: bytes) -> None:
        """Puts one behind the others. There must be room: nothing is lost here."""
        if len(self._records) == _MOST_STACKS:
            raise RuntimeError("the ring of stacks is full: it is not read")
        self._records.append(record)

    def read(self) -> Iterator[bytes]:
        """What is there now."""
        while self._records:
            yield self._records.popleft()

    def close(self) -> None:
        """Nothing is mapped."""


class Machine:
    """What happens, and what the kernel reports of it.

    Attributes:
        clock: Its time.
        stacks: Its stacks and code.
        pid: Of the program that trains: this process, so that it is there when /proc is asked.
        forked: How many processes there were.
        written: How many records.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.ring = KernelRing()
        self.pid = os.getpid()
        self.forked = self.written = 0
        self._until_ns = self.clock.now_ns
        self._living: deque[tuple[int, int]] = deque()  # (when it ends, pid)
        self.stacks = StackRing()
        self._stack = FIRST_STACK
        self._loop = _loop(self.pid, self._stack + 1)
        self._begun = False

    def advance(self, seconds: float) -> None:
        """Time goes by, and what happens in it is in the ring."""
        self.clock.sleep(seconds)
        while self._until_ns + TICK_NS <= self.clock.now_ns:
            self._tick()

    def _tick(self) -> None:
        begin = self._until_ns
        self._until_ns += TICK_NS
        parts = (
            [] if self._begun else [items.event(Kind.EXEC, begin, pid=self.pid, tid=self.pid, comm=b"python")]
        )
        if not self._begun:
            self._code(self.pid)
            self._stack_of(self.pid)  # where it copies and waits, as long as it lives
        self._begun = True
        loop = self._loop.copy()
        loop["t_end"] += np.uint64(begin)
        calls = (loop["kind"] == Kind.CALL) & (loop["stack"] == 0)
        loop["stack"][calls] = self._stack_of(self.pid)
        parts += [loop, *self._births(begin), *self._deaths()]
        batch = items.joined(parts)
        batch = batch[np.argsort(batch["t_end"], kind="stable")]
        batch["seq"] = np.arange(self.written + 1, self.written + len(batch) + 1, dtype=np.uint64).astype(
            np.uint32
        )
        self.written += len(batch)
        self.ring.write(batch)

    def _births(self, begin: int) -> Iterator[Records]:
        for number in range(FORKS):
            pid, at = NOBODY + self.forked % _MOST_NUMBER, begin + (number + 1) * TICK_NS // (FORKS + 2)
            self.forked += 1
            yield items.event(
                Kind.FORK, at, pid=pid, tid=pid, next_pid=self.pid, next_tid=self.pid, comm=b"sh"
            )
            yield items.event(Kind.EXEC, at + MS, pid=pid, tid=pid, comm=f"job{self.forked % 1000}".encode())
            yield items.off(at + 6 * MS, 3 * MS, MS, pid=pid, tid=pid)
            if self.forked % _CALLS_EVERY == 0:
                self._code(pid)
                stack = self._stack_of(pid)
                yield items.call(at + 9 * MS, MS, "cudaMalloc", pid=pid, tid=pid, stack=stack, bytes=4096)
            self._living.append((at + LIVES_NS, pid))

    def _deaths(self) -> Iterator[Records]:
        while self._living and self._living[0][0] < self._until_ns:
            at, pid = self._living.popleft()
            yield items.event(Kind.EXIT, at, pid=pid, tid=pid, flags=ExitFlag.GROUP_DEAD)

    # -- what the maps of the kernel say -------------------------------------------------------------

    def threads(self) -> npt.NDArray[np.void]:
        """The states of the threads that are watched."""
        pids = [self.pid, *(pid for _, pid in self._living)]
        states = np.zeros(len(pids), schema.THREAD_STATE_DTYPE)
        states["pid"] = states["tid"] = pids
        states["off_since"][1:], states["syscall"] = self.clock.now_ns - MS, schema.NO_SYSCALL
        return states

    def cpus(self) -> npt.NDArray[np.void]:
        """One CPU that has lost nothing."""
        states = np.zeros(1, schema.CPU_STATE_DTYPE)
        states["seq"] = self.written & 0xFFFFFFFF
        return states

    def gpus(self) -> SimpleNamespace:
        """What NVML reports."""
        sample = items.gpus(self.clock.now_ns, 40 + self.written % 20, [self.pid])
        for row in sample.data["gpus"]:
            row["clients"] = []
        return SimpleNamespace(time_ns=sample.time_ns, data=sample.data)

    # -- lines of Python -----------------------------------------------------------------------------

    def _code(self, pid: int) -> None:
        head, table = np.zeros(1, CODE_DTYPE), bytes([0x80 | 11 << 3 | 7, 0, 0])
        head["kind"], head["pid"], head["serial"], head["code"] = CODE_RECORD, pid, pid, 0x7F00_0000_1000
        head["table_bytes"] = head["part"] = len(table)
        for name, text, room in (("file", b"/app/train.py", 512), ("name", b"step", 256)):
            head[f"{name}_length"], head[f"{name}_state"] = len(text), _ASCII
            head[name] = np.void(text.ljust(room, b"\0"))
        blob = bytearray(256)
        blob[_LAYOUT.first_line] = 41
        head["object"] = np.void(bytes(blob))
        self.stacks.write(head.tobytes() + table)

    def _stack_of(self, pid: int) -> int:
        """A stack that was not there before."""
        head, frame = np.zeros(1, STACK_DTYPE), np.zeros(1, FRAME_DTYPE)
        self._stack += 1
        head["kind"], head["pid"], head["serial"], head["id"] = STACK_RECORD, pid, pid, self._stack
        head["count"] = 1
        frame["code"] = 0x7F00_0000_1000
        frame["instruction"] = 0x7F00_0000_1000 + _LAYOUT.first_instruction
        self.stacks.write(head.tobytes() + frame.tobytes())
        return self._stack


def _loop(pid: int, stack: int) -> Records:
    """The records of some steps that copy, launch and wait, from 0 on; ``stack``: of copies and waits."""
    program = programs.Program()
    who = {"pid": pid, "tid": pid}
    for step in range(STEPS):
        at = step * STEP_US
        program.call(
            programs.COPY_ASYNC, at + 100, at + 130, kind=programs.H2D, bytes=1 << 20, stack=stack, **who
        )
        for launch in range(6):
            program.call(programs.LAUNCH, at + 200 + 10 * launch, at + 205 + 10 * launch, **who)
        program.call(programs.SYNC, at + 300, at + 20_000, stack=stack, **who)
        program.off(at + 310, at + 19_990, at + 19_980, **who)
        program.preempted(at + 30_000, at + 31_000, next_pid=1, next_tid=1, **who)
    batch = program.batch()
    batch["t_end"] -= np.uint64(items.START)
    return batch
