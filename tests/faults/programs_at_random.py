"""Random programs of several threads and streams, and what of the proofs the simulated GPU contradicts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.analysis.proofs.gaps import GpuTime
from gputop.api.reading import open_file
from gputop.simgpu.trace import read_trace
from tests.faults.bench import Bench
from tests.faults.scenario import Scenario, lines, role

EVENTS = 6
LATE_NS = 150_000  # of a wait, by the simulated driver's timer; nobody could tell that from work


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
        ops = [operation(chance, kinds, alone=threads == 1) for _ in range(chance.randint(40, 120))]
        script += lines("- devsync" if chance.random() < 0.5 else "- burn 1000", *ops)
    script += "" if threads > 1 or chance.random() < 0.5 else "- devsync\n"
    env = {"SIMGPU_INIT_MS": "0", "SIMGPU_FIRST_LAUNCH_MS": "0", "FAULTS_BYTES": str(1 << 18)}
    blocking = chance.random() < 0.5
    return Scenario(f"P{seed}", f"streams {kinds}", script, (), 1, streams=kinds, blocking=blocking, env=env)


def evidence_of(recording: Path) -> Evidence:
    """As ``gputop explain`` reads it."""
    reader = open_file(str(recording))
    gatherer = Gatherer(reader.header)
    for item in reader.items():
        gatherer.feed(item)
    reader.close()
    return assemble(gatherer)


def contradictions(bench: Bench, seeds: range) -> tuple[int, list[str]]:
    """Runs programs under one recording; ns proved idle, and what the trace contradicts."""
    with bench.recording(f"random-{seeds.start}") as recording:
        runs = [(seed, *bench.run_bare(program(seed))) for seed in seeds]
    gpu = GpuTime(evidence_of(recording))
    wrong: list[str] = []
    proved = 0
    for seed, began, ended, trace in runs:
        told = read_trace(trace)
        for begin, end in _empty(gpu, began, ended):
            busy = told.busy_intervals(None, None, begin, end, work_from="start")
            proved += end - begin
            if ns := _length(busy):
                wrong.append(f"P{seed}: {begin}..{end} is called empty, {ns} ns of it were not")
        for begin, end in _pending(gpu, began, ended):
            idle = told.idle_intervals(None, None, begin, end, work_from="enqueue")
            if (ns := _length(idle)) > LATE_NS:
                wrong.append(
                    f"P{seed}: work is said to be pending in {begin}..{end}, {ns} ns of it were idle"
                )
    return proved, wrong


def _length(rows: npt.NDArray[np.int64]) -> int:
    return int((rows[:, 1] - rows[:, 0]).sum()) if len(rows) else 0


def _empty(gpu: GpuTime, began: int, ended: int) -> Iterator[tuple[int, int]]:
    """The gaps called proved in one program's life."""
    gaps = gpu.gaps
    rows = zip(gaps.begin.tolist(), gaps.end.tolist(), gaps.proved.tolist(), strict=True)
    return ((begin, end) for begin, end, sure in rows if sure and began < begin and end < ended)


def _pending(gpu: GpuTime, began: int, ended: int) -> Iterator[tuple[int, int]]:
    """The times in one program's life in which the GPU is said to have had work: idle time's upper bound."""
    for span in gpu.spans:
        begins, ends = gpu.pending(span.device)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if began < begin and end < ended:
                yield begin, end
