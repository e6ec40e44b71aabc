"""Libraries that come and vanish by the hundred: what is kept is bounded, and marks come in time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from probes.files import mmap_events
from probes.files.mmap_events import Hears, MmapEvents
from probes.source import Sample
from probes.stacks import line_tracker, stackring
from probes.stacks.kernel_resolver import Kernels
from probes.stacks.mappings import Mappings
from probes.stacks.native_frames import Frame, NotYet
from probes.stacks.resolver import Resolver, Stack
from tests import items
from tests.items import START


def test_stacks_that_take_too_long_wait_for_the_next_mark() -> None:
    unread = deque([b"first", b"second"])
    assert list(stackring.Turn(0).of(unread)) == []
    assert list(stackring.Turn(10).of(unread)) == [b"first", b"second"]
    assert not unread


class Ring:
    """The ring of stacks with one record in it."""

    fill = 0.1

    def __init__(self, record: bytes) -> None:
        self._records = [record]

    def read(self) -> list[bytes]:
        taken, self._records = self._records, []
        return taken


def with_one_left_and_one_in_the_ring(
    monkeypatch: pytest.MonkeyPatch, told: list[Sample]
) -> tuple[line_tracker.Lines, list[bytes]]:
    """Lines with a stack that an earlier mark had no time for; and the stacks that are looked at."""
    nothing: Any = None
    subject = line_tracker.Lines(nothing, nothing, lambda _pid: True, told.append, ())
    left, newest = (number.to_bytes(8, "little") * 8 for number in (1, 2))
    looked_at: list[bytes] = []

    def take(records: Iterator[bytes]) -> Iterator[Stack]:
        looked_at.extend(records)
        return iter(())

    ring: Any = Ring(newest)
    inbox = stackring.Inbox(ring, lambda _record: False)
    monkeypatch.setattr(subject, "inbox", inbox)
    monkeypatch.setattr(subject.resolver, "consume", take)
    inbox.unread.append(left)
    inbox.looked_at()
    return subject, looked_at


def test_at_the_end_the_ring_is_read_although_something_is_left_from_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lines of a process that ended last were lost on a busy machine."""
    told: list[Sample] = []
    subject, looked_at = with_one_left_and_one_in_the_ring(monkeypatch, told)
    assert list(subject.drain(0, last=True)) == []
    assert [record[0] for record in looked_at] == [1, 2]
    assert told == []


def test_stacks_that_the_end_has_no_time_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_tracker, "LAST_TURN_S", 0.0)
    told: list[Sample] = []
    subject, looked_at = with_one_left_and_one_in_the_ring(monkeypatch, told)
    assert list(subject.drain(0, last=True)) == []
    assert looked_at == []
    (problem,) = told
    assert problem.data["text"].startswith("the last 2 stacks were not resolved in time")


def test_kernels_whose_file_is_not_read_at_the_end_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_tracker, "LAST_S", 0.05)
    told: list[Sample] = []
    subject, _ = with_one_left_and_one_in_the_ring(monkeypatch, told)

    def never(_pid: int, _address: int, _time_ns: int) -> Frame | None:
        raise NotYet

    monkeypatch.setattr(subject, "kernels", Kernels(never, time.sleep))
    launches = [items.call(START, 1000, "cudaLaunchKernel", aux=address) for address in (0x10, 0x20)]
    subject.kernels.notice(items.joined(launches))
    assert list(subject.drain(0)) == []
    assert told == [], "they are asked for again"
    assert list(subject.drain(0, last=True)) == []
    (problem,) = told
    assert problem.data["text"].startswith("the names of the last 2 kernels were not found in time")


def test_stacks_that_wait_for_symbols_are_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver([], Mappings(lambda pid: None))
    told: list[bytes] = []

    def stack(record: bytes) -> Stack:
        told.append(record)
        if record == b"never":
            raise NotYet
        return Stack(1, 1, ())

    monkeypatch.setattr(resolver, "stack_of", stack)
    resolver.nameless = [b"never", b"one", b"two"]
    turns = iter([True, False])
    assert list(resolver.complete(lambda: next(turns))) == []
    assert told == [b"never"]
    assert len(list(resolver.complete(lambda: True))) == 2
    assert told == [b"never", b"one", b"two", b"never"], "who was not reached goes first"
    assert resolver.waits


class Flood:
    """A CPU's records: as many mappings as one likes."""

    newest_ns = 0
    record = (10).to_bytes(4, "little") + bytes(60) + b"/lib/libcudart.so.12\0\0\0\0" + bytes(8)

    def drain(self) -> list[bytes]:
        return [self.record.ljust(104, b"\0")] * 40


def test_mappings_that_nobody_looks_at_are_not_kept_for_ever_and_reported_to_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mmap_events, "MOST_FOUND", 100)
    events = MmapEvents.__new__(MmapEvents)
    events.hears, events.lock, events.found, events.lost = Hears(), threading.Lock(), [], False
    events.rings = [Flood()]  # type: ignore[list-item]
    for _ in range(2):
        events.hear()
    assert (len(events.found), events.lost) == (80, False)
    for _ in range(20):
        events.hear()
    assert (len(events.found), events.lost) == (100, True), "they are found in /proc instead"
