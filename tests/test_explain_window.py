"""A window explains its time as the whole recording does, whatever was dropped before it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import items
import pytest
from items import MS, SECOND, START

from gputop.explain.build import explain
from gputop.explain.chains.analysis import Analysis, analyse
from gputop.explain.evidence.assemble import assemble
from gputop.explain.evidence.evidence import Gatherer
from gputop.explain.window import WINDOW_NS, Window
from probes.schema import ExitFlag, Kind, Records
from probes.source import MARK, Item, Sample
from replay.reader import SessionReader

H2D, D2H = 1 << 8, 2 << 8
RECORDINGS = Path(__file__).parent.parent / "recordings"


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


def ticked(records: list[Records]) -> Iterator[Item]:
    """Records in order of their ends, numbered without a loss, with marks between them."""
    records.sort(key=lambda record: int(record["t_end"][0]))
    mark, batch = START + SECOND // 4, []
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


def gaps_of(analysis: Analysis) -> list[tuple[int, int, str, int, int, bool]]:
    """Each gap with the calls at its ends, by their times; who opened one before the window may be lost."""
    calls, gaps = analysis.evidence.calls, analysis.gpu.gaps
    labels, low = analysis.gpu.devices.labels, analysis.gpu.stretch[0]
    return [
        (
            int(begin),
            int(end),
            labels[device],
            int(calls["end"][opener]) if opener >= 0 and begin > low else -1,
            int(calls["begin"][closer]) if closer >= 0 else -1,
            bool(proved),
        )
        for begin, end, device, opener, closer, proved in zip(
            gaps.begin, gaps.end, gaps.device, gaps.opener, gaps.closer, gaps.proved, strict=True
        )
    ]


@pytest.mark.parametrize("seed", range(6))
def test_dropping_the_past_changes_no_proof(seed: int) -> None:
    window, whole = Window(items.HEADER), Gatherer(items.HEADER)
    compared = found = 0
    for number, item in enumerate(recording(seed)):
        whole.feed(item)
        if window.feed(item) and window.end_ns > START + 12 * SECOND and number % 7 == 0:
            stretch = (window.end_ns - WINDOW_NS, window.end_ns)
            mine = gaps_of(analyse(window.evidence(), stretch))
            assert mine == gaps_of(analyse(assemble(whole), stretch)), window.end_ns
            compared += 1
            found += len(mine)
    assert compared > 3


def of_file(name: str) -> list[Item]:
    """The items of a recording that ships with the program."""
    reader = SessionReader(RECORDINGS / name)
    found = list(reader.items())
    reader.close()
    return found


@pytest.mark.parametrize("name", ["dataloader.msgpack", "storm.msgpack"])
def test_a_window_that_holds_all_explains_as_the_command_does(name: str) -> None:
    found = of_file(name)
    header = SessionReader(RECORDINGS / name).header
    window, whole = Window(header), Gatherer(header)
    for item in found:
        window.feed(item)
        whole.feed(item)
    assert window.verdict().report == explain(assemble(whole))


def steps(seconds: float, *, begin: int = 0) -> list[Records]:
    """A program that waits for its stream and then works for 4 of 10 ms on the host."""
    records = []
    for number in range(int(seconds * 100)):
        time = START + begin + number * 10 * MS
        records.append(items.call(time + 5_000, 5_000, stream=0x5000))
        records.append(items.call(time + 6 * MS, 6 * MS - 10_000, "cudaStreamSynchronize", stream=0x5000))
    return records


def idle_of(records: list[Records]) -> tuple[int, int]:
    """Idle time of the last ten seconds, from a window and from everything."""
    window, whole = Window(items.HEADER), Gatherer(items.HEADER)
    for item in [items.apis(), items.process(10, start_ns=START), *ticked(records)]:
        window.feed(item)
        whole.feed(item)
    verdict = window.verdict()
    stretch = (verdict.end_ns - WINDOW_NS, verdict.end_ns)
    return verdict.report.idle.lower, explain(assemble(whole), None, stretch).idle.lower


def born() -> Records:
    return items.event(Kind.FORK, START + 1, pid=10, tid=10)


def test_a_stream_that_was_never_waited_for_blocks_its_gpu_a_minute_later() -> None:
    old = items.call(START + 500_000, 5_000, stream=0x7000, tid=11)
    assert idle_of([born(), old, *steps(40, begin=MS)]) == (0, 0)


def test_a_stream_that_was_waited_for_once_does_not() -> None:
    old = items.call(START + 500_000, 5_000, stream=0x7000, tid=11)
    wait = items.call(START + 800_000, 100_000, "cudaStreamSynchronize", stream=0x7000, tid=11)
    mine, whole = idle_of([born(), old, wait, *steps(40, begin=MS)])
    assert mine == whole > 3 * SECOND


def test_what_was_lost_counts_within_the_window_only() -> None:
    found = ticked([born(), *steps(30)])
    window = Window(items.HEADER)
    for item in [items.apis(), *found]:
        if isinstance(item, Sample) and item.kind == MARK:
            lost = 7 if item.time_ns > START + 5 * SECOND else 0
            lost += 2 if item.time_ns > START + 25 * SECOND else 0
            item = items.mark(0, item.time_ns, ring=lost)
        window.feed(item)
    assert window.verdict().report.lost_events == 2


def test_where_events_come_too_fast_the_window_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.explain.window.MOST_ROWS", 1_000)
    window = Window(items.HEADER)
    for item in [items.apis(), *ticked([born(), *steps(20)])]:
        window.feed(item)
        assert len(window.evidence().calls) < 1_200
    report = window.verdict().report
    assert 2 * SECOND < report.duration_ns < 6 * SECOND
    assert report.idle.lower > 0.3 * report.span_ns


def test_what_is_carried_does_not_grow() -> None:
    rng = random.Random(4)
    program, records, time = Program(100, rng, seen_from_birth=True), [], START
    while time < START + 90 * SECOND:
        time += 15 * MS
        records += program.act(time)
    window = Window(items.HEADER)
    sizes = [window.carried_rows for item in [items.apis(), *ticked(records)] if window.feed(item)]
    assert max(sizes) < 300
    assert max(sizes[-100:]) < 2 * max(sizes[100:200])


def test_threads_that_have_ended_are_forgotten_and_the_living_are_not() -> None:
    lives = [born()]
    for number in range(60):
        tid, time = 1_000 + number, START + number * SECOND // 2
        lives.append(items.event(Kind.FORK, time + 2, pid=10, tid=tid))
        lives.append(items.event(Kind.EXIT, time + MS, pid=10, tid=tid))
    window = Window(items.HEADER)
    for item in [items.apis(), *ticked([*lives, *steps(30)])]:
        window.feed(item)
    evidence = window.evidence()
    assert 10 in evidence.complete
    assert 10 in evidence.threads.tid
    assert len(evidence.threads.tid) < 35
