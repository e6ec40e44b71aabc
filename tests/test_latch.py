"""A latch can be set by a handler of signals, whatever code the signal meets."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from probes.process.realtime import Latch

SOON_S = 5.0


def told_at(place: int, latch: Latch | threading.Event, soon_s: float = SOON_S) -> tuple[bool, bool]:
    """Sets it, as a handler of its own thread would, at an instruction of a wait that is over at once.

    Args:
        place: Which instruction, from 0.
        latch: Not set.
        soon_s: When the wait should be over.

    Returns:
        Whether there are so many instructions, and whether the wait came to its end.
    """
    passed = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
        nonlocal passed
        frame.f_trace_opcodes = True
        if event == "opcode":
            passed += 1
            if passed == place + 1:
                latch.set()
        return trace

    def wait() -> None:
        sys.settrace(trace)
        latch.wait(0.0)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(soon_s)
    return passed > place, not waiting.is_alive()


def test_it_can_be_set_at_each_instruction_of_a_wait() -> None:
    place = 0
    while True:
        latch = Latch()
        reached, ended = told_at(place, latch)
        assert ended, f"a signal at instruction {place} is waited for by itself"
        if not reached:
            break
        assert latch.is_set()
        place += 1
    assert place > 10


def test_an_event_of_threads_waits_for_itself_there() -> None:
    """Why there is a latch: if this fails, Python's own has become good enough."""
    for place in range(300):
        reached, ended = told_at(place, threading.Event(), 0.5)
        if not ended:
            return
        if not reached:
            break
    pytest.fail("an event can be set at each instruction")


def test_who_waits_is_woken_and_all_others_that_come_later_do_not_wait() -> None:
    latch = Latch()
    threading.Timer(0.05, latch.set).start()
    begun = time.monotonic()
    assert latch.wait(60.0)
    assert latch.wait(60.0)
    assert time.monotonic() - begun < 30


def test_a_wait_ends_without_it_after_its_time_and_no_earlier() -> None:
    latch = Latch()
    begun = time.monotonic()
    assert not latch.wait(0.0201)
    assert time.monotonic() - begun >= 0.0201


def test_several_threads_wait_at_a_time() -> None:
    latch, ended = Latch(), []
    waiting = [threading.Thread(target=lambda: ended.append(latch.wait(60.0)), daemon=True) for _ in range(4)]
    for thread in waiting:
        thread.start()
    latch.set()
    for thread in waiting:
        thread.join(SOON_S)
    assert ended == [True] * 4
