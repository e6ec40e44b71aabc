"""The ends of a recording: its last frame has the verdict of the command, and true figures."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pytest

import gputop
from gputop.playback.player import ReplayFeed, frame_at
from probes.proc import procfs
from replay.reader import SessionReader
from tests.each_recording import FILES as EACH
from tests.waiting import wait_until


@pytest.mark.parametrize("file", EACH)
@pytest.mark.slow
@pytest.mark.mainly("dataloader-workers", "healthy")
def test_who_plays_to_the_end_reads_there_what_the_command_says(file: Path) -> None:
    with gputop.open_session(file) as session:
        wanted = gputop.explain(session)
    reader = SessionReader(file)
    feed = ReplayFeed(reader, 0, 64.0, playing=True)
    feed.start()
    try:
        wait_until(lambda: feed.explained().report == wanted, "what the command says")
        assert feed.explained().end_ns == feed.end_ns
    finally:
        feed.close()
        reader.close()


@pytest.mark.parametrize("file", EACH)
def test_the_last_frame_shows_rates_and_own_cpu_as_the_frames_before_it(file: Path) -> None:
    reader = SessionReader(file)
    last = len(reader.marks) - 1
    frames = [frame_at(reader, index) for index in range(last - 4, last + 1)]
    reader.close()
    for figure in ("own_cpu_percent", "calls_per_second", "events_per_second"):
        *before, end = (getattr(frame, figure) for frame in frames)
        assert 0.5 * median(before) <= end <= 2 * median(before), figure


def test_a_few_milliseconds_show_nothing_of_own_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"wall": 0, "cpu": 0}
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock["wall"])
    monkeypatch.setattr(time, "process_time_ns", lambda: clock["cpu"])
    own = procfs.OwnUse()
    clock.update(wall=250_000_000, cpu=10_000_000)
    assert own.sample()[0] == pytest.approx(4.0)
    clock.update(wall=254_000_000, cpu=14_000_000)
    assert own.sample()[0] == pytest.approx(4.0), "it was busy while it ended, and only then"
    clock.update(wall=500_000_000, cpu=15_000_000)
    assert own.sample()[0] == pytest.approx(2.0), "and nothing of that is lost"
