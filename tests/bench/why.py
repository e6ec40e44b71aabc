"""What the live explanation costs: taking events in, forgetting, looking at what is new, explaining all."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import numpy as np

from gputop.analysis.incremental import LONGEST_S, LOOK_SHARE, PERIOD_S, SHARE, Fresh, explained
from gputop.analysis.window import Window
from probes.source import Sample
from tests.bench.demo import observe
from tests.bench.rows import Row

TAKEN_BOUND, WHOLE_BOUND = 2.0, 40.0  # times a copy and a count of the records; times ten seconds' taking in
SECONDS = 16.0
STORY = "dataloader"


def rows(folder: Path) -> list[Row]:
    """The sum, as its threads spend it, each paced by its own cost; what taking in and explaining cost."""
    source, items = observe(STORY, SECONDS)
    window, fresh, fed, plain = Window(source.header), Fresh(), 0.0, 0.0
    costs: list[float] = []
    looks: list[float] = []
    looked_ns = 0
    for item in items:
        if not isinstance(item, Sample):
            began = time.thread_time()
            np.bincount(item.copy()["op"])
            plain += time.thread_time() - began
        began = time.thread_time()
        closed = window.feed(item)
        fed += time.thread_time() - began
        if closed and window.end_ns - int(source.header["start_ns"]) > 10e9:
            began = time.thread_time()
            whole = explained(window)
            costs.append(time.thread_time() - began)
            if len(costs) == 1:
                fresh.consume(whole)
        if closed and costs and window.end_ns - looked_ns > LONGEST_S * 1e9:
            looked_ns, began = window.end_ns, time.thread_time()
            fresh.look(window)
            looks.append(time.thread_time() - began)
    seconds = (window.end_ns - int(source.header["start_ns"])) / 1e9
    one = median(costs)
    period = max(PERIOD_S, one / SHARE)
    look = median(looks)
    between = min(max(look / LOOK_SHARE, 0.25), LONGEST_S)
    events = sum(len(item) for item in items if not isinstance(item, Sample))
    detail = (
        f"taking in {1000 * fed / seconds:.1f} ms a second ({events / seconds:.0f} events/s), "
        f"one explanation {1000 * one:.0f} ms, every {period:.1f} s; one look {1000 * look:.0f} ms, every "
        f"{between:.2f} s; demo {STORY}"
    )
    cost = 100 * (fed / seconds + one / period + look / between)
    return [
        Row("explanation live, of a core", cost, "%", None, detail),
        Row(
            "taking an event in / copy and count",
            fed / plain,
            "",
            TAKEN_BOUND,
            f"{1e9 * fed / events:.0f} ns",
        ),
        Row("one explanation / taking ten seconds in", one / (10 * fed / seconds), "", WHOLE_BOUND),
    ]
