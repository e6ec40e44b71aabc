"""What is copied to go on by itself shares nothing that changes, whatever fields it gets one day."""

from __future__ import annotations

import pytest

from gputop.analysis.evidence.gatherer import Gatherer
from gputop.analysis.window import Window
from gputop.engine.fork_state import apart
from probes.source import GPUS, NAMES, Sample
from tests import items
from tests.items import START
from tests.programs import LAUNCH, SYNC, Program


class Later(Gatherer):
    """A gatherer with a field that somebody adds."""

    def __init__(self, added: object) -> None:
        super().__init__(items.HEADER)
        self.added = added


def test_a_new_list_is_not_shared() -> None:
    gatherer = Later([1])
    other = gatherer.copy()
    assert isinstance(other, Later)
    assert isinstance(other.added, list)
    other.added.append(2)
    assert gatherer.added == [1]


def test_a_new_field_that_cannot_be_copied_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Later\.added is a bytearray_iterator without copy\(\)"):
        Later(iter(bytearray(b"ab"))).copy()


def test_what_is_named_as_shared_is_one() -> None:
    gatherer = Later([1])
    assert apart(gatherer, shared=vars(gatherer)).added is gatherer.added


def test_a_window_that_goes_on_leaves_the_one_it_was_copied_from_alone() -> None:
    window, program = Window(items.HEADER), Program()
    program.call(LAUNCH, 0, 10)
    program.call(SYNC, 20, 900_000)
    window.feed(items.apis())
    window.feed(program.batch())
    window.feed(items.mark(1, START + 1_000_000_000))
    before = window.evidence()
    other = window.compact()
    again = Program()
    again.call(LAUNCH, 1_100_000, 1_100_010)
    other.feed(again.batch())
    other.feed(Sample(NAMES, START, {"tid": [10], "pid": [10], "name": ["later"]}))
    other.feed(Sample(GPUS, START, {"gpus": []}))
    other.feed(items.mark(2, START + 2_000_000_000))
    after = window.evidence()
    assert len(other.evidence().calls) > len(after.calls) == len(before.calls)
    assert (after.end_ns, after.gpus, after.facts.thread_name(10)) == (before.end_ns, before.gpus, "10")
