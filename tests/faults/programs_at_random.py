"""Random programs of several threads and streams, and what of the proofs the simulated GPU contradicts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gputop.commands.replay import open_file
from gputop.explain.assemble import assemble
from gputop.explain.evidence import Evidence, Gatherer
from gputop.explain.gaps import GpuTime
from gputop.simgpu.trace import Trace, read_trace
from tests.faults.bench import Bench
from tests.faults.scenario import Scenario, lines, role

EVENTS = 6
LATENCY_NS = 10_000  # from an enqueue to its start


def operation(chance: random.Random, kinds: str, *, alone: bool) -> str:
    """One line of a script."""
    stream, event = chance.randrange(len(kinds)), chance.randrange(EVENTS)
    size = 4 ** chance.randrange(9)
    choices = {
        f"- launch {stream} {int(10 ** chance.uniform(3.5, 6.2))} {chance.randint(1, 3)}": 8,
        f"- h2d {stream} {size} {chance.choice(('pin', 'page'))}": 2,
        f"- d2h {stream} {size} {chance.choice(('pin', 'page'))}": 2,
        f"- copyback 0 {size} page": 0.5,
        f"- sync {stream}": 3,
        "- devsync": 1,
        f"- query {stream}": 1,
        f"- record {stream} {event}": 2,
        f"- waitev {stream} {event}": 1,
        f"- evsync {event}": 1.5,
        f"- evquery {event}": 1,
        f"- hostfn {stream} 200000": 0.3,
        "- malloc 65536": 0.4,
        f"- burn {chance.randrange(10_000, 600_000)}": 3,
        f"- sleep {chance.randrange(10_000, 600_000)}": 1,
    }
    if alone and kinds[stream] != "l":
        # calls of other threads must stay away from a stream that captures
        choices |= {f"- graph {stream}": 0.3, f"- recapture {stream}": 0.3}
    return chance.choices(list(choices), list(choices.values()))[0]


def program(seed: int) -> Scenario:
    """One that runs for some tens of ms."""
    chance = random.Random(seed)
    kinds = "".join(chance.choice("lbnn") for _ in range(chance.randint(1, 4)))
    threads = chance.choice((1, 1, 2, 3))
    script = ""
    for thread in range(threads):
        script += role("main") if thread == 0 else role(f"thread{thread}", "thread", "-", thread % 2)
        ops = [operation(chance, kinds, alone=threads == 1) for _ in range(chance.randint(20, 60))]
        script += lines("- devsync" if chance.random() < 0.5 else "- burn 1000", *ops)
    script += "" if threads > 1 or chance.random() < 0.5 else "- devsync\n"
    env = {"SIMGPU_INIT_MS": "0", "SIMGPU_FIRST_LAUNCH_MS": "0"}
    blocking = chance.random() < 0.5
    return Scenario(f"P{seed}", f"streams {kinds}", script, (), 1, streams=kinds, blocking=blocking, env=env)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A program of which something was called proved that is not so."""

    seed: int
    text: str


def evidence_of(recording: Path) -> Evidence:
    """As ``gputop explain`` reads it."""
    reader = open_file(str(recording))
    gatherer = Gatherer(reader.header)
    for item in reader.items():
        gatherer.feed(item)
    reader.close()
    return assemble(gatherer)


def contradictions(bench: Bench, seeds: range) -> Iterator[tuple[int, list[Contradiction]]]:
    """Runs programs under one recording; (ns proved idle in truth, what is false) for each."""
    with bench.recording(f"random-{seeds.start}") as recording:
        places = [(seed, bench.run_bare(program(seed))) for seed in seeds]
    evidence = evidence_of(recording)
    for seed, (began, ended, trace) in places:
        yield _held(seed, GpuTime(evidence, (began, ended)), read_trace(trace))


def _held(seed: int, gpu: GpuTime, told: Trace) -> tuple[int, list[Contradiction]]:
    wrong = []
    proved = 0
    rows = zip(gpu.gaps.begin.tolist(), gpu.gaps.end.tolist(), gpu.gaps.proved.tolist(), strict=True)
    for begin, end, sure in rows:
        busy = told.busy_intervals(None, None, begin, end, work_from="start")
        ns = int((busy[:, 1] - busy[:, 0]).sum()) if len(busy) else 0
        proved += end - begin
        if sure and ns:
            wrong.append(Contradiction(seed, f"{begin}..{end} is called empty, {ns} ns of it were not"))
    for span in gpu.spans:
        low = _idle(told, span.begin, span.end, "start")
        high = _idle(told, span.begin, span.end, "enqueue")
        if span.empty_ns > low + LATENCY_NS:
            wrong.append(Contradiction(seed, f"at least {span.empty_ns} ns idle, in truth {low}"))
        if span.empty_ns + span.unknown_ns + span.outside_ns < high - LATENCY_NS:
            most = span.empty_ns + span.unknown_ns
            wrong.append(Contradiction(seed, f"at most {most} ns idle, in truth {high}"))
    return proved, wrong


def _idle(told: Trace, begin: int, end: int, since: str) -> int:
    found = told.idle_intervals(None, None, begin, end, work_from=since)  # type: ignore[arg-type]
    return int(np.sum(found[:, 1] - found[:, 0])) if len(found) else 0
