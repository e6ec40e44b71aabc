"""Short work between launches: what samples and the thread's pace say decides, not how long it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.analysis.answer.report import Level, Report
from gputop.analysis.build import examine
from gputop.analysis.evidence.columns import WHOLE
from probes.source import FRAMES, PLACES, Sample
from tests.items import START
from tests.programs import MAIN, US
from tests.simulated import SECOND, Deed, Machine, launches

OWN = 1 << 62 | 1  # a stack
PROGRAM = ["/srv/train.py", 7, "tokenize"]
EVERY_US = 10_000  # a sample
JSON = "/usr/lib/python3.11/json/decoder.py"
TORCH = "/usr/lib/python3/site-packages/torch/optim/adam.py"
PACED = [Deed("launch", 10), Deed("host", 10)] * 20  # a launch each 10 us and what it takes itself


def told(step: list[Deed], inner: str = "", *, sampled: bool = True, gaps: int = WHOLE.gaps) -> Report:
    """What is reported of a loop in which samples meet the thread in the work with the cause ``fault``."""
    machine, times, due = Machine(), [], 0
    while machine.length < 2 * SECOND:
        for deed in step:
            begin = machine.now
            machine.run([deed])
            if deed.cause == "fault" and begin >= due:
                times.append(START + (begin + machine.now) // 2 * US)
                due = begin + EVERY_US
    machine.run([Deed("sync")])
    machine.utilization(SECOND // 6)
    program = machine.finished()
    rows = [[inner, 3, "run"], PROGRAM] if inner else [PROGRAM]
    program.samples.append(Sample(FRAMES, START, {"pid": [MAIN], "stack": [OWN], "frames": [rows]}))
    if sampled:
        data = {"time": times, "tid": [MAIN] * len(times), "stack": [OWN] * len(times)}
        program.samples.append(Sample(PLACES, START + machine.now * US, data))
    return examine(program.evidence(), effort=replace(WHOLE, gaps=gaps))[0]


WORK = Deed("host", 600, cause="fault")


@pytest.mark.slow
@pytest.mark.parametrize("wait", [[], [Deed("sync")], [Deed("read")]])
@pytest.mark.parametrize("inner", ["", JSON])
def test_short_work_of_the_program_is_no_launching(wait: list[Deed], inner: str) -> None:
    """0.6 ms between steps of 0.4 ms of launches: in the program's own code, or in what it calls."""
    report = told([*PACED, *wait, WORK], inner)
    first = report.findings[0]
    assert (first.cause, first.title) == ("C28", "host work between launches")
    assert first.line is not None
    assert first.line.text() == "train.py:7 in tokenize()"
    assert first.name_level == Level.STRONG
    assert "no framework's code; 6" in " ".join(first.evidence)
    assert "one launch to the next" in " ".join(first.evidence)


@pytest.mark.slow
@pytest.mark.parametrize(("wait", "cause"), [([], "C06"), ([Deed("sync")], "C03"), ([Deed("read")], "C01")])
def test_a_frameworks_own_code_is_launching(wait: list[Deed], cause: str) -> None:
    assert told([*PACED, *wait, WORK], TORCH).findings[0].cause == cause


@pytest.mark.slow
@pytest.mark.parametrize(("wait", "cause"), [([], "C06"), ([Deed("sync")], "C03")])
def test_without_samples_short_work_is_not_known_to_be_other(wait: list[Deed], cause: str) -> None:
    assert told([*PACED, *wait, WORK], sampled=False).findings[0].cause == cause


def test_many_equal_gaps_are_launching_wherever_samples_meet_it() -> None:
    """A loop of the program that launches a kernel each 120 us: each gap is as long as all others."""
    slow = [one for _ in range(20) for one in (Deed("launch", 10), Deed("host", 120, cause="fault"))]
    assert told(slow).findings[0].cause == "C06"


@pytest.mark.slow
@pytest.mark.parametrize(("busy", "cause"), [(100, "C28"), (1_500, "C01")])
def test_work_behind_a_longer_read_stays_with_the_read(busy: int, cause: str) -> None:
    """Without the read host and GPU work side by side: where the GPU works longer that wins as much."""
    report = told([*PACED, *launches([busy]), Deed("read"), WORK])
    assert report.findings[0].cause == cause


@pytest.mark.slow
def test_what_is_too_short_to_be_followed_goes_where_the_like_went() -> None:
    """Of very many gaps only the longest are followed one by one."""
    whole, few = (told([*PACED, WORK], gaps=gaps).findings[0] for gaps in (WHOLE.gaps, 500))
    assert whole.cause == few.cause == "C28"
    assert few.loss.middle == pytest.approx(whole.loss.middle, rel=0.02)
