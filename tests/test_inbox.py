"""Stacks between two marks: room is made where it is needed, and memory has a bound."""

from __future__ import annotations

from typing import Any

from probes.stacks.stackring import Inbox


class Ring:
    """A ring of ten records, filled by the test."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.stuck = False

    @property
    def fill(self) -> float:
        return len(self.records) / 10

    def read(self) -> list[bytes]:
        if self.stuck:
            return []
        taken, self.records = self.records, []
        return taken


def inbox_of(ring: Any) -> Inbox:
    return Inbox(ring, lambda record: record == b"no stack")


def test_a_ring_that_is_nearly_empty_is_left_alone() -> None:
    ring = Ring()
    inbox = inbox_of(ring)
    ring.records = [b"a"] * 5
    inbox.relieve()
    assert (len(inbox.unread), len(ring.records)) == (0, 5)


def test_one_that_is_half_full_is_emptied_and_what_is_no_stack_goes_aside() -> None:
    ring = Ring()
    inbox = inbox_of(ring)
    ring.records = [b"a", b"no stack"] * 3
    inbox.relieve()
    assert list(inbox.unread) == [b"a"] * 3
    assert ring.records == []


def test_what_waits_for_a_mark_is_bounded_and_goes_on_after_it() -> None:
    ring = Ring()
    inbox = inbox_of(ring)
    for _ in range(100):
        ring.records = [b"a"] * 10
        inbox.relieve()
    assert len(inbox.unread) == 40, "four rings full"
    inbox.looked_at()
    inbox.drain()
    assert len(inbox.unread) == 40, "the mark had no time for them: first those"
    inbox.unread.clear()
    inbox.looked_at()
    inbox.drain()
    assert len(inbox.unread) == 10


def test_a_record_that_is_still_being_written_uses_up_nothing() -> None:
    ring = Ring()
    inbox = inbox_of(ring)
    ring.records, ring.stuck = [b"a"] * 10, True
    for _ in range(100):
        inbox.relieve()
    ring.stuck = False
    inbox.drain()
    assert len(inbox.unread) == 10


def test_at_the_end_all_is_taken() -> None:
    ring = Ring()
    inbox = inbox_of(ring)
    inbox.unread.append(b"left")
    inbox.looked_at()
    ring.records = [b"a"]
    inbox.drain(last=True)
    assert list(inbox.unread) == [b"left", b"a"]
