"""What a call costs whose runtime function calls the driver's, against empty pairs of probes on both.

A launch, and a synchronising call of a native program with its line, as it is by default, and without. Rounds
in which the call without probes took over 10 ns more than it usually did are left out; the row says how many.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from probes.code import libraries
from tests.bench.calls import BATCHES, CALLS, ROUNDS, Empty, Gputop
from tests.bench.rows import Row
from tests.bench.workload import COUNTED, FRAMES, LIGHT, OWN_FRAMES, Apart, Driver, build_both_layers

LAUNCH, SYNC = LIGHT["cudaLaunchKernel"], COUNTED["cudaStreamSynchronize"]
LAYERS = 2
DISTURBED_NS = 10  # over the median of its rounds: then others had the CPU's caches or clock, too
BOUND = 1.05  # of two empty pairs
SYNC_BOUND, LINE_BOUND = 1.35, 1.40


def rows(folder: Path) -> list[Row]:
    """A row each: a launch, a synchronising call without its line, and with it from a place met before."""
    runtime, below, program = build_both_layers(folder / "layers")
    found = [libraries.target(path) for path in (runtime, below)]
    over, under = (one for one in found if one is not None)
    with Apart() as place, Driver(program, place.cpu, str(FRAMES - OWN_FRAMES)) as driver:
        empty = Empty(over, under)
        without, lined = (Gputop(over, driver.pid, lines) for lines in ("off", "slow"))
        for one in (without, lined):
            one.also(under)
        times: list[dict[str, float]] = []

        def measured(function: int, gputop: Gputop | None = None) -> float:
            driver.order(function, BATCHES, CALLS)
            return driver.answer(gputop.drain if gputop else lambda: None).fastest_ns

        for _ in range(ROUNDS):
            costs = {"launch": measured(LAUNCH), "sync": measured(SYNC)}
            with empty.attached():
                costs |= {"launch pairs": measured(LAUNCH), "sync pairs": measured(SYNC)}
            with without.attached():
                costs |= {"launch traced": measured(LAUNCH, without), "sync traced": measured(SYNC, without)}
            with lined.knowing([]):
                costs["sync lined"] = measured(SYNC, lined)
            times.append(costs)
        made = ROUNDS * BATCHES * CALLS * LAYERS
        for one, expected in ((without, 2 * made), (lined, made)):
            if (lost := one.close()) or one.calls != expected or one.without_line:
                raise RuntimeError(
                    f"{one.calls} calls seen, {one.without_line} without their line and {lost} records lost, "
                    f"of {expected} calls made"
                )
    return [
        row_of("launch with both layers / empty pairs", "launch", "launch traced", BOUND, times),
        row_of("sync with both layers / empty pairs", "sync", "sync traced", SYNC_BOUND, times),
        row_of("sync with both layers, native line / empty pairs", "sync", "sync lined", LINE_BOUND, times),
    ]


def row_of(title: str, call: str, traced: str, bound: float, times: list[dict[str, float]]) -> Row:
    """Of rounds that nothing disturbed, by the call without probes, which is no part of what is compared."""
    pairs = f"{call} pairs"
    usual = median(costs[call] for costs in times)
    kept = [costs for costs in times if costs[call] <= usual + DISTURBED_NS]
    ratio = median((costs[traced] - costs[call]) / (costs[pairs] - costs[call]) for costs in kept)
    text = ", ".join(f"{min(costs[name] for costs in kept):.0f}" for name in (call, pairs, traced))
    left_out = (
        f"; {len(times) - len(kept)} of {len(times)} rounds disturbed, left out"
        if len(kept) < len(times)
        else ""
    )
    return Row(title, ratio, "", bound, f"{text} ns{left_out}")
