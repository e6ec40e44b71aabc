"""Where the host was met while the GPU had nothing to do: looks at threads become a line of its chain."""

from __future__ import annotations

import pytest

from gputop.explain.looks import places_of
from gputop.explain.report import Finding
from probes.source import FRAMES, PLACES, Sample
from tests.items import START
from tests.programs import COPY_ASYNC, H2D, LAUNCH, MAIN, SYNC, US, Program, started

STEP = 20_000  # us: 10 of launches and waiting, 10 of the host's own work
DECODE, AUGMENT, UNTOLD = (1 << 62 | number for number in (1, 2, 3))


def loop(looks: list[tuple[int, int]], tid: int = MAIN, steps: int = 10) -> Program:
    """Steps whose input is prepared by the thread itself; ``looks`` are (us within each step, stack)."""
    program = started()
    for begin in range(0, steps * STEP, STEP):
        program.call(COPY_ASYNC, begin, begin + 500, kind=H2D, bytes=1 << 20)
        program.call(LAUNCH, begin + 510, begin + 520)
        program.call(SYNC, begin + 530, begin + 10_000)
    program.call(COPY_ASYNC, steps * STEP, steps * STEP + 500, kind=H2D, bytes=1 << 20)
    times = [START + (begin + at) * US for begin in range(0, steps * STEP, STEP) for at, _ in looks]
    stacks = [stack for _ in range(steps) for _, stack in looks]
    frames = [[["/app/data.py", 7, "decode"]], [["/app/data.py", 9, "augment"]]]
    told = {"pid": [MAIN, MAIN], "stack": [DECODE, AUGMENT], "frames": frames}
    program.samples.append(Sample(FRAMES, START, told))
    places = {"time": times, "tid": [tid] * len(times), "stack": stacks}
    program.samples.append(Sample(PLACES, START, places))
    return program


def finding(program: Program) -> Finding:
    (found,) = (one for one in program.report().findings if one.kind == "idle")
    return found


def test_the_line_that_was_met_most_often_is_named_and_is_the_findings() -> None:
    found = finding(loop([(11_000, DECODE), (13_000, DECODE), (15_000, AUGMENT)]))
    assert found.chain[-1].text.endswith("was on a CPU, most often at data.py:7 in decode() (20 of 30 looks)")
    assert found.line is not None
    assert (found.line.file, found.line.line, found.line.function) == ("/app/data.py", 7, "decode")


def test_looks_while_the_gpu_had_work_do_not_count() -> None:
    found = finding(loop([(5_000, DECODE), (6_000, DECODE), (15_000, AUGMENT)]))
    assert "data.py:9 in augment() (10 of 10 looks)" in found.chain[-1].text


@pytest.mark.parametrize(
    ("looks", "tid"), [([], MAIN), ([(15_000, UNTOLD)], MAIN), ([(15_000, DECODE)], MAIN + 77)]
)
def test_without_a_known_look_at_this_thread_none_is_named(looks: list[tuple[int, int]], tid: int) -> None:
    found = finding(loop(looks, tid))
    assert found.chain[-1].text.endswith("was on a CPU")
    assert found.line is None


def test_one_look_is_not_enough() -> None:
    program = loop([(15_000, DECODE)])
    for name in ("time", "tid", "stack"):
        del program.samples[-1].data[name][1:]
    assert "most often" not in finding(program).chain[-1].text


def test_a_damaged_sample_is_taken_as_far_as_it_goes() -> None:
    assert len(places_of({"time": [1, 2], "tid": [5], "stack": [DECODE, DECODE]})) == 1
    assert len(places_of({})) == 0
