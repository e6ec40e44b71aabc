"""Before anybody chooses: the verdict's process is selected, and who uses no CUDA is said to use none."""

from __future__ import annotations

from dataclasses import replace

from gputop.engine.frame import Frame, ProcessRow
from gputop.playback.feed import Explained
from gputop.ui.model.answer.subject import subject_of
from gputop.ui.model.answer.why import why_of
from gputop.ui.model.view import View
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import Shown


def idle(row: ProcessRow) -> ProcessRow:
    """The same process without any CUDA."""
    return replace(row, calls=(), calls_per_second=0.0, gpus=(), gpu_memory_bytes=None, top_api="", name="sh")


def wrapped() -> Frame:
    """A shell that starts a helper and the program that calls CUDA."""
    frame = fake.frame(processes=3)
    shell, helper, program = frame.processes
    rows = (
        idle(shell),
        replace(idle(helper), parent_pid=shell.pid),
        replace(program, parent_pid=helper.pid),
    )
    return replace(frame, processes=rows)


def test_the_program_is_selected_and_not_the_shell_that_started_it() -> None:
    frame = wrapped()
    shell, _helper, program = frame.processes
    assert subject_of(Explained(), frame, shell.pid) == program.pid


def test_the_process_of_the_verdict_comes_first_whoever_calls_most() -> None:
    frame = fake.frame(processes=4)
    told = frame.processes[3].pid
    assert subject_of(why.explained(why.finding(pid=told)), frame, frame.processes[0].pid) == told
    assert subject_of(why.explained(why.finding(pid=1)), frame, None) is None, "one that is not listed"


def test_who_has_chosen_a_row_keeps_it() -> None:
    view, frame = View(), fake.frame(processes=4)
    first, second = (row.pid for row in frame.processes[1:3])
    view.explain(why.explained(why.finding(pid=first)))
    view.show(frame)
    assert view.processes.selected == first
    view.processes.select(second)
    view.explain(why.explained(why.finding(pid=first)))
    view.show(fake.frame(1, processes=4))
    assert view.processes.selected == second


def test_while_only_the_shell_is_there_the_shell_is_selected() -> None:
    frame = wrapped()
    alone = replace(frame, processes=frame.processes[:1])
    assert subject_of(Explained(), alone, alone.processes[0].pid) == alone.processes[0].pid


def test_processes_without_cuda_are_reported_to_have_used_none() -> None:
    frame = wrapped()
    shell = replace(frame, processes=frame.processes[:1])
    both = replace(frame, processes=frame.processes[:2])
    assert why_of(Explained(), both).text == "none of 2 processes has made a CUDA call yet"
    said = f"sh ({shell.processes[0].pid}) has made no CUDA call yet"
    for size, start in (((120, 40), " "), ((59, 24), "WHY ? ")):
        shown = Shown(shell, size=size).text()
        assert start + said in shown
        assert "This process has not used CUDA so far" in shown


def test_no_work_yet_is_never_reported_beside_launches() -> None:
    frame = fake.frame(processes=1)
    giving = replace(frame, processes=(replace(frame.processes[0], calls=(fake.call(0),)),))
    screen = Shown(giving, size=(59, 24))
    screen.explain(why.explained(gpus=(), span_ns=0, diagnosis=None))
    assert "WHY ? too few CUDA calls so far" in screen.text()
