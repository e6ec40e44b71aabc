"""Runs scenarios of one seed and judges them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.faults import controls, loading, mixed, single, waiting
from tests.faults.bench import Bench, Run, RunError
from tests.faults.cgroup import available
from tests.faults.explained import ExplainError, explain
from tests.faults.judge import Verdict, disturbed, judge
from tests.faults.scenario import SCENARIOS, Draw, Scenario

FAMILIES = (single, loading, waiting, controls, mixed)  # importing them registers their scenarios
BATCH = 12  # runs under one recording
TRIES = 3  # a machine that is busy otherwise may hide what was injected; the truth says so


def drawn(seed: int, names: Iterable[str] = ()) -> list[Scenario]:
    """The scenarios of a seed."""
    chosen = list(names) or list(SCENARIOS)
    made = [SCENARIOS[name](Draw(seed, name)) for name in chosen]
    return [one for one in made if available() or not one.quota]


def _attempt(bench: Bench, scenario: Scenario) -> Run:
    """Runs it until the truth shows what was injected."""
    for left in range(TRIES - 1, -1, -1):
        run = bench.run(scenario)
        if not left or not disturbed(run):
            break
    return run


def runs(bench: Bench, scenarios: list[Scenario], label: str) -> Iterator[list[Run]]:
    """Batches of runs, each with its recording complete."""
    for start in range(0, len(scenarios), BATCH):
        with bench.recording(f"{label}-{start}"):
            done = [_attempt(bench, one) for one in scenarios[start : start + BATCH]]
        yield done


def verdict(run: Run) -> Verdict:
    """Asks gputop and judges."""
    try:
        return judge(run, explain(run))
    except ExplainError as error:
        return Verdict(run, {}, False, (f"explain failed: {error}",))


def verdicts(bench: Bench, scenarios: list[Scenario], label: str) -> Iterator[Verdict]:
    """Every scenario, run and judged."""
    for batch in runs(bench, scenarios, label):
        with ThreadPoolExecutor(2) as pool:
            yield from pool.map(verdict, batch)


__all__ = ["FAMILIES", "RunError", "drawn", "runs", "verdict", "verdicts"]
