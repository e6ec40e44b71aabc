"""What an event costs on its way from the ring buffer to the frame, measured on a burst of real events.

The bound is on the ratio to a reader that only copies such a burst out of the ring and counts its calls, in
turn with the others: so a slow machine, or a busy one, does not count against gputop.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from gputop.engine.engine import Engine
from probes.code import libraries
from probes.observe.live_source import LiveSource
from probes.observe.plan import POLL_S, LivePlan
from probes.source import MARK, Sample
from tests.bench.calls import Gputop
from tests.bench.rows import Row
from tests.bench.workload import IN_TURN, Apart, Driver, build

BOUND = 3.0  # times the plain copy and count
EVENTS, PLAIN_EVENTS = 1_000_000, 250_000
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


def _plain(library: Path, program: Path, cpu: int) -> float:
    """ns per event of a reader that only copies such a burst out of the ring and counts its APIs."""
    target = libraries.target(library)
    assert target is not None
    cost = events = 0
    with Driver(program, cpu) as driver:
        gputop = Gputop(target, driver.pid)
        with gputop.attached():
            driver.order(IN_TURN, PLAIN_EVENTS // 1000, 1000)
            finished = False
            while not finished:
                time.sleep(POLL_S)
                finished = driver.ready(0)
                began = time.thread_time_ns()
                while len(records := gputop.ring.read()):
                    np.bincount(records["op"])
                    events += len(records)
                cost += time.thread_time_ns() - began
            driver.answer()
        gputop.close()
    return cost / events


def rows(folder: Path) -> list[Row]:
    """The cheapest of a few bursts: what disturbs a thread only adds to its CPU time. In the ratio, medians.

    On a busy machine a burst may fill the ring; that changes nothing in the cost of the events that are read.
    """
    library, program = build(folder)
    bursts: list[Burst] = []
    plain: list[float] = []
    with Apart() as place:
        for _ in range(BURSTS):
            plain.append(_plain(library, program, place.cpu))
            bursts.append(_burst(folder, program, place.cpu))
    best = min(bursts, key=lambda burst: burst.ns_per_event)
    detail = (
        f"ring {best.read_ns / best.events:.1f}, engine {best.feed_ns / best.events:.1f}, "
        f"{best.frames} frames {best.frame_ns / best.events:.1f} ns; "
        f"{best.events} events in {best.wall_s:.1f} s, {best.lost} lost; "
        f"bursts {', '.join(f'{burst.ns_per_event:.1f}' for burst in bursts)}"
    )
    counted = f"plain {', '.join(f'{cost:.1f}' for cost in plain)} ns; medians of both"
    return [
        Row("reader, an event up to the frame", best.ns_per_event, "ns", None, detail),
        Row(
            "the same / plain copy and count",
            median(burst.ns_per_event for burst in bursts) / median(plain),
            "",
            BOUND,
            counted,
        ),
    ]
