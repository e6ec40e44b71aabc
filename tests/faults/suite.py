"""Runs scenarios of one seed and judges them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tests.faults import controls, loading, mixed, single, waiting
from tests.faults.bench import Bench, Run, RunError
from tests.faults.cgroup import available
from tests.faults.damage import at_random, one_each, without
from tests.faults.explained import ExplainError, explain
from tests.faults.judge import Verdict, disturbed, false_proofs, judge, work_as_itself
from tests.faults.robust import ROBUST
from tests.faults.scenario import SCENARIOS, Draw, Scenario

FAMILIES = (single, loading, waiting, controls, mixed)  # importing them registers their scenarios
BATCH = 16  # runs under one recording
TRIES = 3  # a machine that is busy otherwise may hide what was injected; the truth says so


def drawn(seed: int, names: Iterable[str] = ()) -> list[Scenario]:
    """The scenarios of a seed."""
    chosen = list(names) or list(SCENARIOS)
    made = [SCENARIOS[name](Draw(seed, name)) for name in chosen]
    return [one for one in made if available() or not one.quota]


def robust(bench: Bench, seed: int, names: Iterable[str] = tuple(ROBUST)) -> Iterator[Verdict]:
    """R2 to R9, or some of them: only what the trace contradicts is wrong."""
    made = [ROBUST[name](Draw(seed, name)) for name in names]
    for batch in runs(bench, made, f"robust-{seed}", tries=1):
        for run in batch:
            said = explain(run)
            yield Verdict(run, said, True, tuple(false_proofs(run, said)))


def damaged(bench: Bench, seed: int) -> Iterator[tuple[str, list[str]]]:
    """R1: records gone without a mark; (what was done, what is wrong)."""
    with bench.recording(f"damaged-{seed}"):
        run = _attempt(bench, replace(SCENARIOS["T01"](Draw(seed, "R1")), attached=False), TRIES)
    whole = explain(run)["gpu_idle_ns"]["lower"]
    for name, keep, least in (
        ("one record a second", one_each(10**9, seed), 0.9),
        ("one record in a thousand", at_random(0.001, seed), 0.0),
        ("one record in twenty", at_random(0.05, seed), 0.0),
    ):
        path = run.recording.with_suffix(f".{name.replace(' ', '-')}.gputop")
        gone = without(run.recording, path, keep)
        hurt = replace(run, recording=path)
        said = explain(hurt)
        misses = false_proofs(hurt, said)
        if gone and not said["lost"]["events"]:
            misses.append("nothing is said to be lost")
        # what a lost record leaves unproved until the whole GPU is waited for is estimated, not forgotten
        idle = said["gpu_idle_ns"]
        left = idle["upper"] if idle["estimate"] is None else idle["estimate"]
        if left < least * whole:
            misses.append(f"{left} ns of {whole} are left")
        yield f"{name}: {gone} gone, {said['gpu_idle_ns']['lower'] / whole:.0%} left", misses


def direct(bench: Bench, seed: int) -> Iterator[Verdict]:
    """Without a file: over a command from its start, and over a second of a program that already runs."""
    for name, attached in (("T01", False), ("T03", True)):
        made = replace(SCENARIOS[name](Draw(seed, f"direct {name}")), attached=attached)
        if attached:  # it must still run when gputop has started
            endless = made.script.replace(f"- loop {made.steps}\n", "- loop 100000\n")
            made = replace(made, script=endless, limit_ms=60_000.0)
        run, text = bench.run_explained(made)
        said = json.loads(text)
        if attached:  # only a part of the run was seen
            cause = said["findings"][0]["cause"] if said["findings"] else "nothing"
            wanted = work_as_itself(run, said).scenario.expected[0].cause
            wrong = [] if cause == wanted else [f"first: {cause}"]
            yield Verdict(run, said, not wrong, (*wrong, *false_proofs(run, said)))
        else:
            yield judge(run, said)


def _attempt(bench: Bench, scenario: Scenario, tries: int) -> Run:
    """Runs it until the truth shows what was injected."""
    for left in range(tries - 1, -1, -1):
        run = bench.run(scenario)
        if not left or not disturbed(run):
            break
    return run


def runs(bench: Bench, scenarios: list[Scenario], label: str, tries: int = TRIES) -> Iterator[list[Run]]:
    """Batches of runs, each with its recording complete."""
    for start in range(0, len(scenarios), BATCH):
        with bench.recording(f"{label}-{start}"):
            done = [_attempt(bench, one, tries) for one in scenarios[start : start + BATCH]]
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
        yield from map(verdict, batch)


__all__ = ["FAMILIES", "RunError", "drawn", "runs", "verdict", "verdicts"]
