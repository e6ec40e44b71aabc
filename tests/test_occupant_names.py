"""Who preempts has a name as long as anything can know it: the thread's, else its process's."""

from __future__ import annotations

from gputop.engine.facts import Facts
from gputop.engine.frame import Share
from gputop.ui.model.look import UNICODE
from gputop.ui.model.process.call_table import shares_text
from probes.source import NAMES, PROCESS, Sample
from tests import items
from tests.cause_stories import STEP_US, STRANGER, preempted
from tests.items import START


def facts() -> Facts:
    """A watched process, and threads of another one of which some were named."""
    made = Facts()
    made.consume(Sample(PROCESS, 1, {"pid": 42, "name": "train.py", "watched": True, "start_ns": 0}))
    made.consume(Sample(NAMES, 2, {"tid": [42, 9401], "pid": [42, 9400], "name": ["python", "cc1plus"]}))
    return made


def test_a_thread_that_was_over_before_its_name_was_read_has_that_of_its_process() -> None:
    assert facts().thread_name(4299, 42) == "train.py"
    assert facts().thread_name(9422, 9400) == "cc1plus", "by another thread of the same process"
    assert facts().process_name(9400) == "cc1plus"
    assert facts().process_title(9400) == "cc1plus (9400)"


def test_a_name_that_is_known_stays_and_nothing_is_made_up() -> None:
    assert facts().thread_name(9401, 42) == "cc1plus"
    assert facts().thread_name(9422, 9422) == "9422"
    assert facts().thread_name(9422) == "9422"
    assert facts().thread_name(0, 42) == "idle"


def test_a_number_stands_for_no_name() -> None:
    assert facts().process_title(9422) == "an unnamed process (9422)"
    assert facts().thread_title(9422, 9422) == "an unnamed thread (9422)"
    shares = tuple(Share(9422, tid, str(tid), 1, 0.2) for tid in (9422, 9423))
    assert shares_text(shares, UNICODE) == "unnamed x2 40%"


def test_processes_that_each_preempt_for_a_moment_are_one_occupant_by_name() -> None:
    """A compiler that a build starts for each file: 30 of 40 steps are preempted by another process each."""
    program = preempted(lambda at: 2000 + at // STEP_US if at // STEP_US % 4 else STRANGER)
    program.samples.append(items.names(START, {2000 + step: "cc1plus" for step in range(40)}, 2000))
    finding = next(one for one in program.report().findings if one.cause == "C13")
    (advice,) = finding.advice[:1]
    assert advice.startswith(
        "preempted by cc1plus (30 processes) for 75 % of that time, ffmpeg (77) for 25 % of that time: "
    )
    program = preempted(lambda at: 2000 + at // STEP_US)
    finding = next(one for one in program.report().findings if one.cause == "C13")
    assert finding.advice[0].startswith("preempted by unnamed (40 processes) for 100 % of that time: ")
