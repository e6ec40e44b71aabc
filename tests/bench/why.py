"""What the live explanation costs: taking events in, forgetting them, and explaining the last ten seconds."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from gputop.explain.live import PERIOD_S, SHARE
from gputop.explain.window import Window
from probes.source import Sample
from tests.bench.demo import observe
from tests.bench.rows import Row

BOUND = 2.0  # percent of a core
SECONDS = 16.0
STORY = "dataloader"


def rows(folder: Path) -> list[Row]:
    """One row: the sum, as the screen's thread spends it; explaining is paced by its own cost."""
    source, items = observe(STORY, SECONDS)
    window, fed, costs = Window(source.header), 0.0, []
    for item in items:
        began = time.thread_time()
        closed = window.feed(item)
        fed += time.thread_time() - began
        if closed and window.end_ns - int(source.header["start_ns"]) > 10e9:
            began = time.thread_time()
            window.verdict()
            costs.append(time.thread_time() - began)
    seconds = (window.end_ns - int(source.header["start_ns"])) / 1e9
    one = median(costs)
    period = max(PERIOD_S, one / SHARE)
    events = sum(len(item) for item in items if not isinstance(item, Sample))
    detail = (
        f"taking in {1000 * fed / seconds:.1f} ms a second ({events / seconds:.0f} events/s), "
        f"one explanation {1000 * one:.0f} ms, every {period:.1f} s; demo {STORY}"
    )
    return [Row("explanation live, of a core", 100 * (fed / seconds + one / period), "%", BOUND, detail)]
