"""Descriptors beyond 1,023: gputop holds one or more for each library that it probes."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from probes.process.realtime import readable


@pytest.fixture
def high_pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose ends have numbers that select(2) does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("fewer than 1,200 descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    ends = os.pipe()
    high = tuple(os.dup2(end, number) for end, number in zip(ends, (1100, 1101), strict=True))
    try:
        yield high[0], high[1]
    finally:
        for descriptor in {*ends, *high}:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_comes_through_a_high_descriptor_is_waited_for(high_pipe: tuple[int, int]) -> None:
    ours, theirs = high_pipe
    assert not readable(ours, 0)
    os.write(theirs, b"x")
    assert readable(ours, 60)


def test_an_end_is_something_to_read() -> None:
    ours, theirs = os.pipe()
    os.close(theirs)
    try:
        assert readable(ours, 60)
    finally:
        os.close(ours)
