"""Programs that do anything that concerns proofs, at random, and a recording of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from probes.schema import ExitFlag, Kind, Records
from probes.source import Item
from tests import items
from tests.items import MS, SECOND, START

H2D, D2H = 1 << 8, 2 << 8


class Program:
    """A process of two threads that does anything that concerns proofs, at random, in order of time."""

    def __init__(self, pid: int, rng: random.Random, *, seen_from_birth: bool) -> None:
        self.pid, self.rng = pid, rng
        self.streams = [0, 0, 2]
        self.events = [0xE0 + number for number in range(4)]
        self.pinned: list[int] = []
        self.born = seen_from_birth
        self.free = {pid: 0, pid + 1: 0}  # when each thread is free for its next call
        self.capturing = False
        self.unmade = [0x5000, 0x6000] if seen_from_birth else []
        self.busy = rng.choice([[0], [0, 0x5000], [0x5000, 0x6000, 2]])

    def call(self, time: int, op: str, duration: int, **more: int) -> Records:
        tid = self.pid + self.rng.randrange(2)
        time = max(time, self.free[tid] + 1_000)
        self.free[tid] = time + duration
        return items.call(time + duration, duration, op, pid=self.pid, tid=tid, **more)

    def act(self, time: int) -> list[Records]:
        """One call that begins at a time."""
        rng = self.rng
        quick = rng.randrange(2_000, 9_000)
        slow = rng.choice([quick, rng.randrange(100_000, 30 * MS)])
        stream = rng.choice(self.streams)
        event = rng.choice(self.events)
        choice = rng.random()
        if self.unmade:
            self.streams.append(handle := self.unmade.pop())
            flags = rng.choice([0, 1])
            return [self.call(time, "cudaStreamCreateWithFlags", quick, stream=handle, aux=flags)]
        if choice < 0.004 or self.capturing:
            op = "cudaStreamEndCapture" if self.capturing else "cudaStreamBeginCapture"
            self.capturing = not self.capturing or rng.random() < 0.6
            if self.capturing and op == "cudaStreamEndCapture":
                return [self.call(time, "cudaEventRecord", quick, stream=0x5000, aux=event)]
            return [self.call(time, op, quick, stream=0x5000)]
        if choice < 0.01:
            return [self.call(time, "cudaEventCreate", quick, stream=event)]
        if choice < 0.30:
            # some streams get work only now and then
            stream = rng.choice(self.busy) if rng.random() < 0.9 else stream
            return [self.call(time, "cudaLaunchKernel", quick, stream=stream, aux=rng.randrange(3))]
        if choice < 0.42:
            return [self.call(time, "cudaStreamSynchronize", slow, stream=rng.choice(self.busy))]
        if choice < 0.50:
            return [self.call(time, "cudaDeviceSynchronize", slow)]
        if choice < 0.60:
            return [self.call(time, "cudaEventRecord", quick, stream=stream, aux=event)]
        if choice < 0.68:
            return [self.call(time, "cudaEventSynchronize", slow, aux=event)]
        if choice < 0.76:
            return [self.call(time, "cudaStreamWaitEvent", quick, stream=stream, aux=event)]
        if choice < 0.80 and self.born:  # else nobody knows on which GPU a stream was made before
            return [self.call(time, "cudaSetDevice", quick, aux=rng.choice([0, 0, 0, 1]))]
        if choice < 0.84:
            handle = rng.choice([0x5000, 0x6000, 0x7000])
            self.streams.append(handle)
            flags = rng.choice([0, 1])
            return [self.call(time, "cudaStreamCreateWithFlags", quick, stream=handle, aux=flags)]
        if choice < 0.88:
            if self.pinned and rng.random() < 0.5:
                return [self.call(time, "cudaFreeHost", quick, aux=self.pinned.pop())]
            address = rng.choice([0x10000, 0x20000, 0x30000])
            if address in self.pinned:
                return []
            self.pinned.append(address)
            return [self.call(time, "cudaHostAlloc", quick, aux=address, bytes=0x8000)]
        direction = rng.choice([H2D, D2H])
        address = rng.choice([0x10000, 0x20000, 0x30000]) + rng.randrange(0x9000)
        return [self.call(time, "cudaMemcpy", slow, flags=direction, bytes=4096, aux=address)]


def recording(seed: int, seconds: float = 30.0) -> Iterator[Item]:
    """Two programs, one of which may end, with marks every 0.25 s."""
    rng = random.Random(seed)
    yield items.apis()
    programs = [
        Program(100, rng, seen_from_birth=True),
        Program(200, rng, seen_from_birth=rng.random() < 0.5),
    ]
    pause = rng.choice([3, 20, 120]) * MS
    end_of_second = START + int(rng.uniform(0.2, 1.5) * seconds * SECOND)
    records: list[Records] = []
    for program in programs:
        for tid in (program.pid, program.pid + 1):
            kind = Kind.FORK if program.born else Kind.JOIN
            records.append(items.event(kind, START + 1_000, pid=program.pid, tid=tid))
    time = START + 10_000
    gone = False
    while time < START + int(seconds * SECOND):
        time += int(rng.expovariate(1 / pause)) + 10_000
        program = rng.choice(programs)
        if not gone and time > end_of_second:
            gone = True
            time = max(time, *programs[1].free.values()) + 1
            for tid in (201, 200):
                flags = int(ExitFlag.GROUP_DEAD) if tid == 200 else 0
                records.append(items.event(Kind.EXIT, time, pid=200, tid=tid, flags=flags))
        if gone:
            program = programs[0]
        records += program.act(time)
        if rng.random() < 0.2:
            records.append(items.off(time + 9_000, 5_000, 1_000, pid=program.pid, tid=program.pid))
    yield from ticked(records)


def ticked(records: list[Records], start: int = START) -> Iterator[Item]:
    """Records in order of their ends, numbered without a loss, with marks between them."""
    records.sort(key=lambda record: int(record["t_end"][0]))
    mark, batch = start + SECOND // 4, []
    for number, record in enumerate(records, 1):
        record["seq"] = number
        while record["t_end"][0] > mark:
            if batch:
                yield items.joined(batch)
            batch = []
            yield items.mark(0, mark)
            mark += SECOND // 4
        batch.append(record)
    yield items.joined(batch)
    yield items.mark(0, max(mark, int(records[-1]["t_end"][0])))
