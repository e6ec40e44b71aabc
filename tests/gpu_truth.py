"""A tiny GPU that knows the truth: streams as queues in virtual time, driven by random threads.

Written from CUDA's documented stream rules and from nothing of gputop's, so that the two can be compared.
A call takes effect at one moment between its begin and its end; calls of several threads take effect in the
order of those moments. Times are microseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from probes.schema import OffFlag
from tests import programs as p
from tests.programs import Program

NOT_READY, CAPTURED, INVALID = 600, 907, 1
Stream = tuple[int, int, int]  # process, handle, thread (of a per-thread default stream)


@dataclass
class Event:
    """``done`` is when what was recorded is complete; one of a capture can be asked nothing."""

    done: int = 0
    captured: int = 0


@dataclass
class Gpu:
    """What every stream has to do, and when it will be done."""

    done: dict[Stream, int] = field(default_factory=dict)  # operations and waits
    blocking: dict[Stream, bool] = field(default_factory=dict)
    capturing: set[Stream] = field(default_factory=set)
    capture: int = 1  # number of the captures under way
    events: dict[tuple[int, int], Event] = field(default_factory=dict)
    busy: list[tuple[int, int]] = field(default_factory=list)  # from the enqueueing to the completion

    def _peers(self, stream: Stream) -> list[Stream]:
        pid, handle, _thread = stream
        if handle == 0:
            return [one for one in self.done if one[0] == pid and self.blocking.get(one)]
        return [(pid, 0, 0)] if self.blocking.get(stream) else []

    def enqueue(self, stream: Stream, now: int, length: int) -> int:
        """An operation; returns when it will be complete."""
        if stream in self.capturing:
            return now
        after = [self.done.get(one, 0) for one in [stream, *self._peers(stream)]]
        self.done[stream] = max([now + 3, *after]) + length
        self.busy.append((now, self.done[stream]))
        return self.done[stream]

    def wait(self, stream: Stream, event: Event, now: int) -> int:
        """The stream goes on when the event is complete; a captured event draws it into the capture."""
        if event.captured:
            if event.captured != self.capture or stream[1] == 0:
                return CAPTURED
            self.capturing.add(stream)
        elif stream not in self.capturing:
            self.done[stream] = max(self.done.get(stream, 0), event.done, now)
        return 0

    def drained(self, pid: int) -> int:
        """When all streams of a process are empty."""
        return max([0, *(done for stream, done in self.done.items() if stream[0] == pid)])

    def works(self, begin: int, end: int) -> bool:
        """Whether it had work at any moment in between."""
        return any(low < end and high > begin for low, high in self.busy)

    def idle(self, begin: int, end: int) -> int:
        """How long it had none."""
        total, reach = 0, begin
        for low, high in sorted(self.busy):
            low, high = min(max(low, begin), end), min(max(high, begin), end)
            total += max(low - reach, 0)
            reach = max(reach, high)
        return total + max(end - reach, 0)


class Thread:
    """A thread that makes random calls."""

    def __init__(self, world: World, pid: int, tid: int) -> None:
        self.world, self.gpu, self.pid, self.tid = world, world.gpu, pid, tid
        self.draw = world.draw

    def run(self, calls: int) -> Iterator[int]:
        """Makes calls; yields when it goes on."""
        now = self.draw(1, 40)
        for _ in range(calls):
            now += self.draw(1, 30) if self.draw(0, 3) else self.draw(30, 3000)
            yield now
            deed = self.world.deeds[self.draw(0, len(self.world.deeds) - 1)]
            for after in getattr(self, f"_{deed}")(now):
                yield after
                now = after
            now += 1

    def _stream(self) -> tuple[Stream, int]:
        handle = self.world.handles[self.draw(0, len(self.world.handles) - 1)]
        return (self.pid, handle, self.tid if handle == 2 else 0), handle

    def _call(self, op: str, begin: int, end: int, **more: int) -> None:
        self.world.program.call(op, begin, end, pid=self.pid, tid=self.tid, **more)

    def _launch(self, begin: int) -> Iterator[int]:
        stream, handle = self._stream()
        yield begin + self.draw(1, 10)
        effect = self.world.now
        fails = self.draw(0, 20) == 0
        if not fails:
            self.gpu.enqueue(stream, effect, self.draw(1, 100) if self.draw(0, 2) else self.draw(100, 4000))
        end = effect + self.draw(1, 15)
        yield end
        op = (p.LAUNCH, "cudaGraphLaunch", "cuLaunchKernel", "cudaMemsetAsync")[self.draw(0, 3)]
        self._call(op, begin, end, stream=handle, ret=INVALID if fails else 0, bytes=64)

    def _returns(self, op: str, begin: int, effect: int, done: int, **more: int) -> Iterator[int]:
        """A call that waits until ``done``: it may be preempted, or sleep and come back late."""
        if done <= effect:
            end = effect + self.draw(1, 5)
        else:
            late = self.draw(0, 3)
            end = done + self.draw(1, 4) + (self.draw(5, 2000) if late < 2 else 0)
            if late == 0:  # it slept, and got no CPU when it was woken
                self.world.program.off(
                    effect, end - 1, done, pid=self.pid, tid=self.tid, flags=int(OffFlag.WAKER_IRQ)
                )
            elif late == 1:  # it spun, and lost its CPU before the end came
                since = self.draw(effect, done)
                self.world.program.preempted(since, end - 1, pid=self.pid, tid=self.tid)
        yield end
        self._call(op, begin, end, **more)

    def _sync(self, begin: int) -> Iterator[int]:
        stream, handle = self._stream()
        yield begin + self.draw(1, 5)
        if stream in self.gpu.capturing:
            self._call(p.SYNC, begin, self.world.now + 1, stream=handle, ret=CAPTURED)
            yield self.world.now + 1
            return
        effect = self.world.now
        yield from self._returns(p.SYNC, begin, effect, self.gpu.done.get(stream, 0), stream=handle)

    def _device_sync(self, begin: int) -> Iterator[int]:
        yield begin + self.draw(1, 5)
        effect = self.world.now
        if any(stream[0] == self.pid for stream in self.gpu.capturing):
            yield effect + 1
            self._call(p.DEVICE_SYNC, begin, effect + 1, ret=CAPTURED)
            return
        yield from self._returns(p.DEVICE_SYNC, begin, effect, self.gpu.drained(self.pid))

    def _query(self, begin: int) -> Iterator[int]:
        stream, handle = self._stream()
        yield begin + self.draw(1, 3)
        effect = self.world.now
        ret = 0 if self.gpu.done.get(stream, 0) <= effect else NOT_READY
        end = effect + (self.draw(1, 3) if self.draw(0, 5) else self.draw(50, 900))
        if end > effect + 40:
            self.world.program.preempted(effect, end - 1, pid=self.pid, tid=self.tid)
        yield end
        if stream not in self.gpu.capturing:
            self._call(p.QUERY, begin, end, stream=handle, ret=ret)

    def _event(self) -> tuple[Event, int]:
        handle = 0x9000 + self.draw(0, 3)
        return self.gpu.events.setdefault((self.pid, handle), Event()), handle

    def _record(self, begin: int) -> Iterator[int]:
        stream, handle = self._stream()
        event, number = self._event()
        yield begin + self.draw(1, 6)
        event.captured = self.gpu.capture if stream in self.gpu.capturing else 0
        event.done = max(self.gpu.done.get(stream, 0), self.world.now)
        end = self.world.now + self.draw(1, 6)
        yield end
        self._call(p.RECORD, begin, end, stream=handle, aux=number)

    def _new_event(self, begin: int) -> Iterator[int]:
        event, number = self._event()
        yield begin + 1
        event.captured, event.done = 0, 0
        self._call("cudaEventDestroy", begin, begin + 1, aux=number)
        yield begin + 3
        self._call("cudaEventCreate", begin + 2, begin + 3, stream=number)

    def _event_sync(self, begin: int) -> Iterator[int]:
        event, number = self._event()
        yield begin + self.draw(1, 3)
        effect = self.world.now
        if event.captured:
            yield effect + 1
            self._call(p.EVENT_SYNC, begin, effect + 1, aux=number, ret=CAPTURED)
            return
        yield from self._returns(p.EVENT_SYNC, begin, effect, event.done, aux=number)

    def _event_query(self, begin: int) -> Iterator[int]:
        event, number = self._event()
        yield begin + self.draw(1, 3)
        ret = CAPTURED if event.captured else 0 if event.done <= self.world.now else NOT_READY
        end = self.world.now + 1
        yield end
        self._call(p.EVENT_QUERY, begin, end, aux=number, ret=ret)

    def _wait(self, begin: int) -> Iterator[int]:
        stream, handle = self._stream()
        event, number = self._event()
        yield begin + self.draw(1, 4)
        ret = self.gpu.wait(stream, event, self.world.now)
        end = self.world.now + self.draw(1, 4)
        yield end
        self._call(p.WAIT, begin, end, stream=handle, aux=number, ret=ret)

    def _read(self, begin: int) -> Iterator[int]:
        """cudaMemcpy to the host; without bytes it does nothing."""
        empty = self.draw(0, 5) == 0
        yield begin + self.draw(1, 5)
        effect = self.world.now
        done = effect if empty else self.gpu.enqueue((self.pid, 0, 0), effect, self.draw(1, 10))
        yield from self._returns(p.COPY, begin, effect, done, kind=p.D2H, bytes=0 if empty else 4096)

    def _send(self, begin: int) -> Iterator[int]:
        """cudaMemcpy from pageable memory: waits for the work before it, not for itself."""
        yield begin + self.draw(1, 5)
        effect = self.world.now
        before = max(
            [self.gpu.done.get((self.pid, 0, 0), 0)]
            + [
                self.gpu.done[one]
                for one, blocks in self.gpu.blocking.items()
                if blocks and one[0] == self.pid and one in self.gpu.done
            ]
        )
        self.gpu.enqueue((self.pid, 0, 0), effect, self.draw(100, 900))
        yield from self._returns(p.COPY, begin, effect, before, kind=p.H2D, bytes=4096, aux=0x7000)

    def _host_copy(self, begin: int) -> Iterator[int]:
        """cudaMemcpy from host to host: nothing of the GPU's."""
        end = begin + self.draw(2, 60)
        yield end
        self._call(p.COPY, begin, end, kind=0, bytes=4096)

    def _capture(self, begin: int) -> Iterator[int]:
        """Records some calls of its own stream into a graph."""
        stream, handle = self._stream()
        if handle < 3 or stream in self.gpu.capturing:
            return
        yield begin + 2
        if stream in self.gpu.capturing:
            return
        self.gpu.capturing.add(stream)
        self._call("cudaStreamBeginCapture", begin, begin + 3, stream=handle)
        now = begin + 4
        for _ in range(self.draw(1, 5)):
            yield now
            deed = ("launch", "record", "wait")[self.draw(0, 2)]
            for after in getattr(self, f"_{deed}")(now):
                yield after
                now = after
            now += 1
        yield now + 2
        self.gpu.capturing = {one for one in self.gpu.capturing if one[0] != self.pid}
        self.gpu.capture += 1
        self._call("cudaStreamEndCapture", now, now + 3, stream=handle)
        yield now + 4


class World:
    """Threads of one or more processes, run in the order of time."""

    def __init__(self, seed: int, deeds: tuple[str, ...], handles: tuple[int, ...]) -> None:
        self.random = np.random.default_rng(seed)
        self.gpu, self.program = Gpu(), Program()
        self.deeds, self.handles = deeds, handles
        self.now = 0

    def draw(self, low: int, high: int) -> int:
        """A random number, the bounds included."""
        return int(self.random.integers(low, high + 1))

    def run(self, processes: int, threads: int, calls: int) -> None:
        """Runs everything."""
        queue: list[tuple[int, int, Iterator[int]]] = []
        for process in range(processes):
            pid = 10 + 1000 * process
            self.program.starts(pid)
            for handle in (one for one in self.handles if one > 2):
                flags = handle & 1  # odd handles are of non-blocking streams
                self.program.call(
                    "cudaStreamCreateWithFlags", 0, 1, pid=pid, tid=pid, stream=handle, aux=flags
                )
                self.gpu.blocking[pid, handle, 0] = not flags
            for number in range(threads):
                self.gpu.blocking[pid, 2, pid + number] = True
                queue.append((0, len(queue), Thread(self, pid, pid + number).run(calls)))
        heapq.heapify(queue)
        while queue:
            self.now, number, thread = heapq.heappop(queue)
            after = next(thread, None)
            if after is not None:
                heapq.heappush(queue, (max(after, self.now), number, thread))
        self.program.length_us = self.now + 10
