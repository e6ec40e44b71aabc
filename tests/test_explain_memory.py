"""What explaining the window of a busy program allocates for a moment, beside the window itself."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

from gputop.analysis.incremental import explained
from gputop.analysis.window import Window
from probes.source import Item
from tests import items
from tests.items import MS, SECOND, START

PER_BURST, SECONDS = 8, 13
CALLS = PER_BURST * SECONDS * 1_000
TICK = SECOND // 4


def launches() -> Iterator[Item]:
    """Bursts of kernels, one each millisecond, and a sleep behind each."""
    yield items.apis()
    yield items.process(10, start_ns=START)
    for tick in range(SECONDS * SECOND // TICK):
        bursts = np.arange(TICK // MS, dtype=np.uint64) * MS + START + tick * TICK
        calls = np.repeat(items.call(0, 2_000, stream=0x5000), PER_BURST * len(bursts))
        calls["t_end"] = (bursts[:, None] + np.arange(1, PER_BURST + 1, dtype=np.uint64) * 5_000).ravel()
        sleeps = np.repeat(items.off(0, MS - 60_000, 0), len(bursts))
        sleeps["t_end"] = bursts + MS - 1_000
        batch = np.concatenate([calls, sleeps])
        batch = batch[np.argsort(batch["t_end"], kind="stable")]
        batch["seq"] = np.arange(len(batch)) + 1 + tick * len(batch)
        yield batch
        yield items.gpus(START + (tick + 1) * TICK - 1, 5, (10,))
        yield items.mark(tick, START + (tick + 1) * TICK)


@cache
def window() -> Window:
    made = Window(items.HEADER)
    for item in launches():
        made.feed(item)
    explained(made)  # what is kept once
    return made


def peak_bytes(make: Callable[[], object]) -> int:
    """What was allocated at most beside what there was before."""
    tracemalloc.start()
    try:
        made = make()
        assert made is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_an_explanation_allocates_at_most_370_bytes_a_call() -> None:
    busy = window()
    report = explained(busy).verdict.report
    assert report.steps is not None
    assert report.steps.count == PER_BURST * 10_000
    assert peak_bytes(lambda: explained(busy)) / CALLS < 370


def test_a_window_keeps_at_most_50_bytes_a_call() -> None:
    """What all calls of a batch have in common takes no memory of each."""
    found = list(launches())
    tracemalloc.start()
    try:
        made = Window(items.HEADER)
        for item in found:
            made.feed(item)
        assert tracemalloc.get_traced_memory()[0] / CALLS < 50
    finally:
        tracemalloc.stop()
    assert len(made.evidence().calls) > 0.9 * CALLS


def test_an_explanation_keeps_at_most_20_bytes_a_call() -> None:
    busy = window()
    tracemalloc.start()
    try:
        kept = explained(busy)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / CALLS < 20
        assert kept.verdict.report.steps == explained(busy).verdict.report.steps
    finally:
        tracemalloc.stop()


def test_a_checkpoint_allocates_a_tenth_of_that() -> None:
    busy = window()
    assert peak_bytes(busy.compact) / CALLS < 35


def test_a_checkpoint_keeps_at_most_40_kilobytes() -> None:
    busy = window()
    tracemalloc.start()
    try:
        kept = busy.compact()
        assert tracemalloc.get_traced_memory()[0] < 40_000
        assert kept.end_ns == busy.end_ns
    finally:
        tracemalloc.stop()
