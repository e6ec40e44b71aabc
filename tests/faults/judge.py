"""Compares what was reported with the truth. Every miss is a sentence; a run without one is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tests.faults.bench import Run
from tests.faults.scenario import MS, SWITCH_NS, Expected

UNEXPLAINED = 0.02  # of the proved idle time
SLACK_NS = 2 * MS  # no sum is held to less
SPINNING_LOSS_NS = 2 * MS  # what may be certain of a late return that cannot be
MOMENT_NS = 10_000  # a moment is told to the call, idle time begins with its return
PLACES = {"C08": "do_burn", "C19": "do_net"}  # where script.py is when the GPU waits for it
# what a negative control may lose to others: its program was ready to run, or between two of its operations
QUIET_NS = 10 * MS
AFTER_WAITS = ("C01", "C03")  # waits behind which a program of Python may be reported by its work instead


@dataclass(frozen=True, slots=True)
class Verdict:
    """One run judged. ``first`` is whether the first cause is right; ``quiet`` whether nothing was wrong."""

    run: Run
    said: dict[str, Any]
    first: bool
    misses: tuple[str, ...]

    @property
    def row(self) -> tuple[str, ...]:
        """Injected, found, ms truth, ms said, level, what is wrong."""
        expected, findings = self.run.scenario.expected, self.said.get("findings", [])
        truths = " ".join(f"{true_ns(self.run, one) / MS:.1f}" for one in expected) or "0"
        top = findings[: max(len(expected), 1)]
        return (
            self.run.scenario.id,
            " ".join(one.cause for one in expected) or "nothing",
            " ".join(str(one["cause"]) for one in top) or "nothing",
            truths,
            " ".join(_bounds(one) for one in top) or "0",
            " ".join(str(one["level"]) for one in top) or "-",
            "; ".join(self.misses),
        )


def _bounds(finding: dict[str, Any]) -> str:
    lower, upper = finding["loss_ns"]["lower"] / MS, finding["loss_ns"]["upper"] / MS
    return f"{lower:.1f}" if upper < 1.02 * lower else f"{lower:.1f}..{upper:.1f}"


def true_ns(run: Run, expected: Expected) -> float:
    """What was really lost. The kernel's count of throttling tells a quota from others on the CPU."""
    lost = run.truth.causes.get(expected.cause, 0.0)
    if expected.cause == "C14":
        return min(lost, float(run.throttled_ns))
    return lost


def disturbed(run: Run) -> str:
    """Why a run proves nothing: what was injected is not what was lost most, by the truth itself."""
    expected = run.scenario.expected
    others = sum(run.truth.causes.get(label, 0.0) for label in ("C13", "-"))
    if others > QUIET_NS and not expected:
        return f"the machine was busy: others took {others / MS:.0f} ms"
    if not expected or expected[0].kind == "waste":
        return ""
    sizes = [true_ns(run, one) for one in expected]
    rest = {cause: ns for cause, ns in run.truth.causes.items() if cause[:1] == "C"}
    for one in expected:
        rest.pop(one.cause, None)
    other = max(rest.values(), default=0.0)
    if other > 0.8 * sizes[-1]:
        return f"the machine was busy: {max(rest, key=lambda cause: rest[cause])} took {other / MS:.0f} ms"
    if any(small > 0.8 * large for large, small in pairwise(sizes)):
        return "the two faults came out as large as each other"
    return ""


def work_as_itself(run: Run, said: dict[str, Any]) -> Run:
    """The run with C28 for those of its waits that are not found, where samples show the work behind them.

    What follows a wait in a scenario is work of the program's own. Whether it is told by the wait or by the
    work is decided by how long both are and how many samples met it; its size and place in the order stay.
    """
    expected = run.scenario.expected
    found = {one["cause"] for one in said["findings"]}
    told = [one for one in expected if one.cause in AFTER_WAITS and one.cause not in found]
    if run.scenario.language != "python" or "C28" not in found or not told:
        return run
    work = Expected("C28", told[0].levels | {"strong"})
    kept = tuple(work if one is told[0] else one for one in expected if one not in told[1:])
    causes = dict(run.truth.causes)
    causes["C28"] = sum(causes.pop(one.cause, 0.0) for one in told) + causes.get("C28", 0.0)
    return replace(
        run, truth=replace(run.truth, causes=causes), scenario=replace(run.scenario, expected=kept)
    )


def judge(run: Run, said: dict[str, Any]) -> Verdict:
    """All rules of issue 4 that hold for one run."""
    run = work_as_itself(run, said)
    scenario = run.scenario
    findings = said["findings"]
    misses = [*_totals(run, said), *_order(findings)]
    if not scenario.expected:
        misses += [f"found {one['cause']} ({one['level']}, {_bounds(one)} ms)" for one in findings]
        events = [one for one in said["events"] if not _was_kept_from_its_cpu(run, said, one)]
        if len(events) != scenario.events:
            told = ", ".join(f"{one['cause']} {one['ns'] / MS:.1f} ms" for one in events)
            misses.append(f"{len(events)} events, not {scenario.events}: {told}")
        return Verdict(run, said, not findings, tuple(misses))
    causes = [one["cause"] for one in findings]
    wanted = [one.cause for one in scenario.expected]
    first = causes[: len(wanted)] == wanted or (scenario.expected[0].bound == "none")
    if not first:
        misses.append(f"first: {' '.join(causes[:4]) or 'nothing'}")
    for expected in scenario.expected:
        misses += _one(run, said, expected)
    return Verdict(run, said, first, tuple(misses))


def _was_kept_from_its_cpu(run: Run, said: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether an event tells of others on the machine, and by the trace the GPU was idle for most of it.

    What was queued when it began ran on at first. A diary does not say it: who is preempted between two of
    its operations has no label there.
    """
    first = said["start_ns"] + event["time_ns"]
    last = first + event["ns"]
    return event["cause"] == "C13" and any(
        min(end, last) - max(begin, first) > event["ns"] / 2 for begin, end in run.truth.idle
    )


def false_proofs(run: Run, said: dict[str, Any]) -> list[str]:
    """What the simulated GPU's trace contradicts; a denied coverage takes every claim back."""
    if not said["coverage"]:
        return []
    misses = list(_moments(run, said))
    lower, truth = said["gpu_idle_ns"]["lower"], run.truth.idle_ns
    proved = sum(
        one["loss_ns"]["lower"]
        for one in said["findings"]
        if one["kind"] == "idle" and one["level"] == "proved"
    )
    for what, ns in (("idle", lower), ("in proved findings", proved)):
        if ns > truth + SLACK_NS:
            misses.append(f"{ns / MS:.1f} ms {what}, in truth {truth / MS:.1f}")
    return misses


def _one(run: Run, said: dict[str, Any], expected: Expected) -> Iterator[str]:
    found = [one for one in said["findings"] if one["cause"] == expected.cause]
    truth = true_ns(run, expected)
    rounds = run.truth.main.rounds
    allowed = max(run.scenario.tolerance * truth, max(rounds, 100) / 100 * MS)
    allowed += run.scenario.switches * rounds * SWITCH_NS
    # a gap far longer than the others of its kind is reported as an event, which is as good
    apart = sum(one["ns"] for one in said["events"] if one["cause"] == expected.cause)
    lower = apart + sum(one["loss_ns"]["lower"] for one in found)
    upper = apart + sum(one["loss_ns"]["upper"] for one in found)
    if expected.bound == "none":
        if lower > SPINNING_LOSS_NS:
            yield f"{lower / MS:.1f} ms of {expected.cause} called certain"
        return
    if not found:
        return
    # after an attach nothing is certain until the device was synchronised
    levels = expected.levels | {"strong"} if run.scenario.attached else expected.levels
    if found[0]["level"] not in levels:
        yield f"{expected.cause} is {found[0]['level']}, not {'/'.join(sorted(levels))}"
    if place := _place(run, found[0]):
        yield place
    if found[0]["kind"] != expected.kind:
        yield f"{expected.cause} is {found[0]['kind']}, not {expected.kind}"
    inside = run.truth.causes.get(expected.within, 0.0)
    if lower > truth + inside + allowed + _hidden(run, said):
        yield f"{expected.cause}: at least {lower / MS:.1f} ms, in truth {truth / MS:.1f}"
    if upper < truth - allowed:
        yield f"{expected.cause}: at most {upper / MS:.1f} ms, in truth {truth / MS:.1f}"
    if expected.bound == "proved" and lower < truth - allowed:
        yield f"{expected.cause}: only {lower / MS:.1f} ms certain, in truth {truth / MS:.1f}"


def _place(run: Run, found: dict[str, Any]) -> str:
    """A loss in waits of Python code is reported at the line that waits, on its link of the chain as well."""
    wanted = PLACES.get(found["cause"])
    if wanted is None or run.scenario.language != "python" or run.scenario.attached:
        return ""
    links = [link["line"] for link in found["chain"]]
    if found["line"] is None or found["line"] not in links:
        return f"{found['cause']} is at {found['line']}, its chain at {links}"
    function = found["line"]["function"].rpartition(".")[2]
    return "" if function == wanted else f"{found['cause']} is in {function}, not in {wanted}"


def _hidden(run: Run, said: dict[str, Any]) -> float:
    """Time off the CPU that is reported as time on it.

    Kernels may hide the switches of some threads from BPF, as those of the sandbox in which this was written:
    who is preempted by them seems to run on. The program's own clock knows better.
    """
    told = sum(one["loss_ns"]["lower"] for one in said["findings"] if one["cause"] == "C13")
    return max(run.truth.causes.get("C13", 0.0) - told, 0.0)


def _totals(run: Run, said: dict[str, Any]) -> Iterator[str]:
    """What must hold of every run: bounds hold the truth, sums add up."""
    lower, upper = said["gpu_idle_ns"]["lower"], said["gpu_idle_ns"]["upper"]
    if not run.scenario.compare:
        return
    yield from _moments(run, said)
    if lower > run.truth.idle_ns + SLACK_NS:
        yield f"{lower / MS:.1f} ms idle proved, in truth {run.truth.idle_ns / MS:.1f}"
    outside = said["outside_ns"]
    if upper + outside < run.truth.idle_ns - SLACK_NS:
        yield f"at most {upper / MS:.1f} ms idle, in truth {run.truth.idle_ns / MS:.1f}"
    idle = [one for one in said["findings"] if one["kind"] == "idle"]
    told = sum(one["loss_ns"]["lower"] for one in idle)
    proved = sum(one["loss_ns"]["lower"] for one in idle if one["level"] == "proved")
    # before a device synchronisation after an attach, gaps are strong: told, but not part of what is proved
    if proved > lower + SLACK_NS or told > upper + SLACK_NS:
        yield f"findings are {told / MS:.1f} ms, {proved / MS:.1f} proved, of {lower / MS:.1f} ms idle"
    if said["unexplained_ns"] > max(UNEXPLAINED * max(lower, told), SLACK_NS):
        yield f"{said['unexplained_ns'] / MS:.1f} ms unexplained"
    if said["lost"]["events"]:
        yield f"{said['lost']['events']} events lost"
    if not said["coverage"]:
        yield "coverage denied"


def _moments(run: Run, said: dict[str, Any]) -> Iterator[str]:
    """Each moment named by a proved idle finding lies in true idle time."""
    start = said["start_ns"]
    for one in said["findings"]:
        if one["kind"] != "idle" or one["level"] != "proved":
            continue
        for moment in one["moments_ns"]:
            at = start + moment
            if not any(begin - MOMENT_NS <= at <= end + MOMENT_NS for begin, end in run.truth.idle):
                yield f"{one['cause']} at {moment / 1e9:.6f} s: the GPU was busy then"


def _order(findings: list[dict[str, Any]]) -> Iterator[str]:
    """Most time lost first, waste after idle findings of equal size."""
    losses = [one["loss_ns"] for one in findings]
    cost = [
        (loss["lower"] + loss["upper"]) / 2 if loss["estimate"] is None else loss["estimate"]
        for loss in losses
    ]
    keys = [(-ns, one["kind"] == "waste") for ns, one in zip(cost, findings, strict=True)]
    if keys != sorted(keys):
        yield "the findings are not in order of what they cost"
