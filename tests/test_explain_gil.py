"""The GIL is known by how threads that run Python wait for it, however short their waits are."""

from __future__ import annotations

import pytest

from gputop.analysis.build import examine
from gputop.analysis.evidence.columns import length, union
from gputop.analysis.gains import removal
from probes.schema import Kind
from probes.source import FRAMES, Sample
from tests import items
from tests.cause_stories import BUSY_US, CODE, HOLDER, IRQ, STEP_US, STEPS, STRANGER, loop
from tests.items import START
from tests.programs import MAIN, US, Program

SIGNALS, MUTEX = 0x1028, 0x1030  # of glibc's condition variable, and the mutex behind it
OTHER = CODE + 1  # a stack of the same file at another line


def short_turns(
    words: tuple[int, ...] = (SIGNALS, SIGNALS + 4),
    stacks: tuple[int, ...] = (CODE, OTHER),
    *,
    handed_back: bool = True,
) -> Program:
    """Seven waits of 0.9 ms in each step, each ended by a thread that computes meanwhile.

    Args:
        words: The futexes that are waited on, one after the other.
        stacks: The stacks of the waits, one after the other.
        handed_back: The other thread waits there, too, and its waits are ended by this one.
    """
    waits = 0

    def between(program: Program, at: int) -> None:
        nonlocal waits
        for begin in range(at, at + 7_000, 1_000):
            waits += 1
            place = {"argument": words[waits % len(words)]}
            stack = stacks[waits % len(stacks)]
            program.off(begin + 10, begin + 910, stack=stack, waker_pid=MAIN, waker_tid=HOLDER, **place)
            if handed_back:
                program.off(
                    begin + 920, begin + 990, tid=HOLDER, stack=stack, waker_pid=MAIN, waker_tid=MAIN, **place
                )

    program = loop(between)
    program.thread(HOLDER)
    rows = [["/srv/serve.py", 4, "serve"]], [["/srv/serve.py", 9, "prepare"]]
    frames = {"pid": [MAIN, MAIN], "stack": [CODE, OTHER], "frames": list(rows)}
    program.samples += [items.names(START, {HOLDER: "request"}), Sample(FRAMES, START, frames)]
    return program


def test_short_waits_in_turn_are_for_the_gil() -> None:
    first, *_ = short_turns().report().findings
    assert first.cause == "C16"
    assert (
        first.title == f"waits for the GIL, held by thread request ({HOLDER}) of its process, which computes"
    )


@pytest.mark.parametrize(
    "program",
    [
        short_turns((SIGNALS,)),  # a lock of Python has one word
        short_turns(stacks=(CODE,)),  # a barrier of native code is at one line
        short_turns(stacks=(0,)),  # threads that run no Python
        short_turns(handed_back=False),  # a queue of native code: its producer never waits there
    ],
)
def test_other_waits_are_not(program: Program) -> None:
    first, *_ = program.report().findings
    assert "GIL" not in first.title


def test_the_mutex_beside_belongs_to_it() -> None:
    first, *_ = short_turns((SIGNALS, SIGNALS + 4, MUTEX)).report().findings
    assert first.title.startswith("waits for the GIL, held by thread request")


def test_waits_that_end_by_their_time_are_for_the_gil_too() -> None:
    """A thread that finds the GIL free when its wait times out has no waker; it did not sleep on its own."""
    program = short_turns()
    for begin in range(0, 40 * 12_000, 12_000):
        at = begin + 11_050
        program.off(at, at + 700, at + 600, argument=SIGNALS, stack=CODE, flags=IRQ)
    causes = {one.cause: one for one in program.report().findings}
    assert next(iter(causes)) == "C16"
    assert "C32" not in causes  # "sleeps in the loop"
    assert causes["C16"].loss.lower > 40 * 6_900_000


def test_without_those_who_hold_it_nobody_waits_for_their_cpu() -> None:
    """In half of the gaps the thread waits for a CPU that the holder has: that goes with the lock."""

    def gone(tid: int) -> int:
        program = short_turns()
        for begin in range(STEP_US, STEPS * STEP_US, STEP_US):
            at = begin + BUSY_US + 7_010
            program.preempted(at, at + 900, cpu=0)
            running = {"pid": tid, "tid": tid, "duration": 900 * US, "cpu": 0}
            if tid == HOLDER:
                running["pid"] = MAIN
            program.records.append(items.event(Kind.OCCUPANT, START + (at + 900) * US, **running))
        _report, _scene, outcome = examine(program.evidence())
        cause, claim = next(one for one in outcome.claims if one[0].number == "C16")
        taken = removal(cause, claim)
        return length(*union(taken.begin, taken.end))

    assert gone(HOLDER) - gone(STRANGER) == pytest.approx(0.9e6 * (STEPS - 1), rel=0.02)
