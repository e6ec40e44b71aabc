"""The programs that find lines come after the others: what waits for them, and what happens without them."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from probes.ebpf.loader import ProbeError
from probes.source import PROBLEM, Sample
from probes.stacks import programs
from probes.stacks.line_tracker import LOAD_S, Lines


def lines(told: list[Sample]) -> Lines:
    nothing = cast("Any", None)
    return Lines(nothing, nothing, lambda pid: True, told.append, ())


@pytest.mark.timed
def test_a_kernel_that_refuses_them_is_reported_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_programs: object) -> None:
        raise ProbeError("the kernel did not take the probes: too long")

    monkeypatch.setattr(programs, "load", refuse)
    told: list[Sample] = []
    subject = lines(told)
    assert subject.turn(lambda: [1]), "they may come any moment"
    subject.load()
    began = time.monotonic()
    subject.wait()
    assert time.monotonic() - began < LOAD_S / 2
    assert [(sample.kind, sample.data["text"]) for sample in told] == [
        (PROBLEM, "lines of Python are unknown: the kernel did not take the probes: too long")
    ]
    assert not subject.turn(lambda: [1])


def test_until_they_are_there_nothing_is_claimed() -> None:
    subject = lines([])
    subject.look_at(1)
    assert list(subject.drain(0)) == []


@pytest.mark.timed
def test_who_stops_need_not_wait_for_them() -> None:
    subject = lines([])
    subject.stop()
    began = time.monotonic()
    subject.wait()
    assert time.monotonic() - began < LOAD_S / 2
    subject.close()
