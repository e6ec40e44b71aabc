"""Random programs, and what of an analysis of them is not so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis.strategies import integers

from gputop.analysis.chains.analysis import Analysis
from tests.gpu_truth import World
from tests.items import START
from tests.programs import US

DEEDS = {
    "syncs": ("launch", "launch", "sync", "device_sync", "query"),
    "events": (
        "launch",
        "launch",
        "record",
        "event_sync",
        "event_query",
        "wait",
        "sync",
        "query",
        "new_event",
    ),
    "legacy": ("launch", "launch", "sync", "read", "send", "query", "device_sync", "host_copy"),
    "capture": ("launch", "launch", "capture", "record", "wait", "event_sync", "sync", "read"),
}
# odd handles above 2 are of non-blocking streams
HANDLES = ((0,), (0, 0x100, 0x101), (0, 2, 0x100))


def world(seed: int, deeds: str, *, handles: int = 0, threads: int = 2, processes: int = 1) -> World:
    """A random program that has run."""
    made = World(seed, DEEDS[deeds], HANDLES[handles % len(HANDLES)])
    made.run(processes, threads, 40)
    return made


def microseconds(times: Any) -> list[int]:
    """As the model counts."""
    return ((np.asarray(times) - START) // US).tolist()


def false_gaps(made: World, analysis: Analysis) -> list[tuple[int, int]]:
    """Gaps called proved in which the GPU had work."""
    gaps = analysis.gpu.gaps
    rows = zip(microseconds(gaps.begin), microseconds(gaps.end), gaps.proved.tolist(), strict=True)
    return [(low, high) for low, high, sure in rows if sure and made.gpu.works(low, high)]


QUICK = 12  # random seeds in make test


def seeds(count: int, quick: int = QUICK) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls a test with ``seed``: some random ones below ``count``, as many as that in make test-long."""
    many = settings().max_examples > settings.get_profile("same").max_examples

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        examples = given(seed=integers(0, count - 1))(test)
        return settings(max_examples=count if many else quick)(examples)

    return decorated
