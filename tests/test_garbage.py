"""Who looks for garbage among old objects: Python itself, or the program where it has taken that over."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from gputop.process import textual_app


class Knot:
    """Garbage that only a collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test says to the collector goes for that test; nothing is frozen for the others."""
    monkeypatch.setattr(gc, "freeze", lambda: None)
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def old_garbage() -> weakref.ref[Knot]:
    knot = Knot()
    gc.collect()  # it is old now
    return weakref.ref(knot)


@pytest.mark.slow
def test_what_was_left_is_looked_at_when_the_program_says_so() -> None:
    textual_app.freeze_old_objects()
    left = old_garbage()
    gc.collect(1)  # as Python does by itself
    assert left() is not None
    textual_app.collect_old_objects()
    assert left() is None


@pytest.mark.slow
def test_where_nothing_was_left_python_alone_looks() -> None:
    left = old_garbage()
    textual_app.collect_old_objects()
    assert left() is not None
