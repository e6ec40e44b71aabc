"""Record live on real eBPF, then replay: every frame is equal. A killed recorder loses its last second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gputop.engine.engine import Engine
from gputop.engine.frame import Frame
from gputop.playback.feeds import LiveFeed
from gputop.playback.player import frame_at
from gputop.playback.recorder import Recorder
from gputop.simgpu import library_build
from probes.observe.live_source import LiveSource
from probes.observe.plan import LivePlan
from replay.past.history import History
from replay.past.history_reader import HistoryReader
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests.cli_support import wait_for_size
from tests.ebpf.growing import marks
from tests.observed_demo import SLEEPS
from tests.waiting import until_good, wait_until

pytestmark = pytest.mark.ebpf


class _Frames(LiveFeed):
    """A live feed that keeps every frame."""

    def __init__(self, source: LiveSource, writer: SessionWriter) -> None:
        super().__init__(source, recorder=Recorder(History(source.header), writer))
        self.frames: list[Frame] = []
        feed = self._engine.feed

        def keep(item: object) -> bool:
            closed = feed(item)  # type: ignore[arg-type]
            if closed:
                self.frames.append(self._engine.frame())
            return closed

        self._engine.feed = keep  # type: ignore[method-assign]


def demo(name: str, seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gputop.demo", name, str(seconds)],
        env=library_build.environment(os.environ) | SLEEPS,
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("story", ["dataloader-workers", pytest.param("healthy", marks=pytest.mark.long)])
def test_replayed_and_sought_frames_equal_the_live_ones(tmp_path: Path, story: str) -> None:
    library_build.ensure_built()
    workload = demo(story, 60)
    source = LiveSource(LivePlan(pids=(workload.pid,), environment=library_build.environment(os.environ)))
    source.start()
    writer = SessionWriter(tmp_path / "session.msgpack", source.header)
    feed = _Frames(source, writer)
    feed.start()
    wait_until(lambda: len(feed.frames) > 11, "some frames")
    past = HistoryReader(feed.recorder.history)
    workload.terminate()
    workload.wait()
    engine = Engine(past.header)
    stepped = [engine.frame() for item in past.items() if engine.feed(item)]
    feed.close()
    assert len(stepped) > 10
    assert stepped == feed.frames[: len(stepped)]
    assert feed.failure() is None
    reader = SessionReader(tmp_path / "session.msgpack")
    engine = Engine(reader.header)
    replayed = [engine.frame() for item in reader.items() if engine.feed(item)]
    assert len(replayed) > 10
    assert sum(frame.calls_per_second for frame in replayed) > 0
    assert replayed == feed.frames
    for index in (0, len(replayed) // 2, len(replayed) - 1):
        assert frame_at(reader, index) == feed.frames[index]


def oldest_mark_ns(file: Path) -> int:
    """How old the last mark of a file that is being written became within two seconds."""
    oldest, until = 0, time.monotonic() + 2
    while time.monotonic() < until:
        now = time.monotonic_ns()
        reader = SessionReader(file)
        oldest = max(oldest, now - int(reader.marks[-1]))
        reader.close()
        time.sleep(0.05)
    return oldest


@pytest.mark.timed
def test_a_killed_recorder_leaves_all_but_the_last_second(tmp_path: Path) -> None:
    file = tmp_path / "session.msgpack"
    workload = demo("healthy", 120)
    command = [
        sys.executable,
        "-m",
        "gputop",
        "record",
        "--lines",
        "off",
        "-o",
        str(file),
        "--simgpu",
        "--pid",
        str(workload.pid),
    ]
    recorder = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for_size(file, 10_000)
        wait_until(lambda: marks(file) > 1, "marks")
        oldest = until_good(lambda: oldest_mark_ns(file), lambda old: old < 1_000_000_000)
        assert oldest < 1_000_000_000, "a kill at any moment would lose no more"
        there = marks(file)
    finally:
        recorder.kill()
        recorder.wait()
        workload.kill()
        workload.wait()
    reader = SessionReader(file)
    assert len(reader.marks) >= there
    last = max(int(item["t_end"].max()) for item in reader.items() if hasattr(item, "dtype") and len(item))
    assert last > int(reader.marks[-2]), "what the program did is there up to the mark"


def test_a_full_disk_ends_the_recording_and_not_the_screen(tmp_path: Path) -> None:
    """The feed goes on with frames and says what happened."""
    import resource

    source = LiveSource(LivePlan(pids=(os.getpid(),)))
    source.start()
    writer = SessionWriter(tmp_path / "session.msgpack", source.header)
    feed = LiveFeed(source, recorder=Recorder(History(source.header), writer))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (writer.size_bytes + 500, hard))
    try:
        feed.start()
        wait_until(lambda: feed.failure() is not None, "the disk to be full")
        assert "recording stopped" in str(feed.failure())
        wait_until(lambda: feed.latest() is not None, "a frame")
        first = feed.latest()
        assert first is not None
        wait_until(lambda: (latest := feed.latest()) and latest.number > first.number, "the next frame")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
        feed.close()
    assert len(SessionReader(tmp_path / "session.msgpack").header) > 0
