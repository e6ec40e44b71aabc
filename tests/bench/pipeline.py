"""What an event costs on its way from the ring buffer to the frame, measured on a burst of real events."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from gputop.engine import Engine
from probes.live import LivePlan, LiveSource
from probes.source import MARK, Sample
from tests.bench.rows import Row
from tests.bench.workload import IN_TURN, Apart, Driver, build

BOUND_NS = 40.0
EVENTS = 1_000_000
BURSTS = 5


@dataclass(slots=True)
class Burst:
    """CPU time of the reading thread, by what it did, and what it saw."""

    read_ns: int = 0
    feed_ns: int = 0
    frame_ns: int = 0
    frames: int = 0
    events: int = 0
    lost: int = 0
    wall_s: float = 0.0

    @property
    def ns_per_event(self) -> float:
        """All of it, frames included."""
        return (self.read_ns + self.feed_ns + self.frame_ns) / self.events


def _consume(source: LiveSource, driver: Driver) -> Burst:
    """What the feed of the live screen does, without the screen."""
    burst, engine = Burst(), Engine(source.header)
    began = time.monotonic()
    last = time.thread_time_ns()
    for item in source.items():
        now = time.thread_time_ns()
        burst.read_ns += now - last
        closed = engine.feed(item)
        fed = time.thread_time_ns()
        burst.feed_ns += fed - now
        if closed:
            engine.frame()
            burst.frames += 1
            if driver.ready(0):
                source.close()
        if isinstance(item, Sample) and item.kind == MARK:
            burst.events, burst.lost = int(item.data["read"]), sum(item.data["lost"].values())
        last = time.thread_time_ns()
        burst.frame_ns += last - fed
    burst.read_ns += time.thread_time_ns() - last
    burst.wall_s = time.monotonic() - began
    return burst


def _burst(folder: Path, program: Path, cpu: int) -> Burst:
    with Driver(program, cpu) as driver:
        source = LiveSource(LivePlan((driver.pid,), environment={"LD_LIBRARY_PATH": str(folder)}))
        source.start()
        try:
            driver.order(IN_TURN, EVENTS // 1000, 1000)
            burst = _consume(source, driver)
        finally:
            source.abandon()
        driver.answer()
    if burst.events < EVENTS / 2:
        raise RuntimeError(f"{burst.events} of {EVENTS} events read, {burst.lost} lost")
    return burst


def rows(folder: Path) -> list[Row]:
    """The cheapest of a few bursts: what disturbs a thread only adds to its CPU time.

    On a busy machine a burst may fill the ring; that changes nothing in the cost of the events that are read.
    """
    _, program = build(folder)
    with Apart() as place:
        bursts = [_burst(folder, program, place.cpu) for _ in range(BURSTS)]
    best = min(bursts, key=lambda burst: burst.ns_per_event)
    detail = (
        f"ring {best.read_ns / best.events:.1f}, engine {best.feed_ns / best.events:.1f}, "
        f"{best.frames} frames {best.frame_ns / best.events:.1f} ns; "
        f"{best.events} events in {best.wall_s:.1f} s, {best.lost} lost; "
        f"bursts {', '.join(f'{burst.ns_per_event:.1f}' for burst in bursts)}"
    )
    return [Row("reader, an event up to the frame", best.ns_per_event, "ns", BOUND_NS, detail)]
