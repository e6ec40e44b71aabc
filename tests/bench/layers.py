"""What a launch costs whose runtime call makes the driver's, against empty pairs of probes on both."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from probes.code import libraries
from tests.bench.calls import BATCHES, CALLS, ROUNDS, Empty, Gputop
from tests.bench.rows import Row
from tests.bench.workload import LIGHT, Apart, Driver, build_both_layers

LAUNCH = LIGHT["cudaLaunchKernel"]
LAYERS = 2
BOUND = 1.05  # of two empty pairs


def rows(folder: Path) -> list[Row]:
    """One row: a launch with both layers."""
    runtime, below, program = build_both_layers(folder / "layers")
    found = [libraries.target(path) for path in (runtime, below)]
    over, under = (one for one in found if one is not None)
    with Apart() as place, Driver(program, place.cpu) as driver:
        empty, gputop = Empty(over, under), Gputop(over, driver.pid)
        gputop.also(under)
        times: list[tuple[float, float, float]] = []

        def measured() -> float:
            driver.order(LAUNCH, BATCHES, CALLS)
            return driver.answer(gputop.drain).fastest_ns

        for _ in range(ROUNDS):
            bare = measured()
            with empty.attached():
                pairs = measured()
            with gputop.attached():
                traced = measured()
            times.append((bare, pairs, traced))
        made = ROUNDS * BATCHES * CALLS * LAYERS
        if (lost := gputop.close()) or gputop.calls != made:
            raise RuntimeError(f"{gputop.calls} calls seen and {lost} records lost, of {made} calls made")
    ratio = median((traced - bare) / (pairs - bare) for bare, pairs, traced in times)
    text = "{:.0f}, {:.0f}, {:.0f} ns".format(*(min(part) for part in zip(*times, strict=True)))
    return [Row("launch with both layers / empty pairs", ratio, "", BOUND, text)]
