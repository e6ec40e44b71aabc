"""A wall clock that is set while gputop runs: durations know nothing, a time of day is what it showed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pynvml
import pytest

from gputop.commands.moment import mark_index
from gputop.errors import CommandError
from gputop.format import format_clock
from gputop.playback.player import frame_at
from probes.nvml import nvml_processes, nvml_samples
from probes.source import MARK, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests.cli_support import complete
from tests.ebpf.growing import marks
from tests.observed_demo import SLEEPS
from tests.waiting import HANGS_S, wait_until

ROOT = Path(__file__).resolve().parents[1]
S, MS, US = 1_000_000_000, 1_000_000, 1_000
HOUR = 3600 * S
NOON = 19_000 * 24 * HOUR + 12 * HOUR  # of some day


class Driver:
    """A driver that samples ten times a second, by the wall clock of that moment, and keeps two seconds."""

    def __init__(self) -> None:
        self.now_ns, self.set_by_ns = 500 * S, 0
        self.true: dict[int, int] = {}  # share -> when it was sampled, monotonic
        self._kept: list[tuple[int, int]] = []

    def time_ns(self) -> int:
        return NOON + self.now_ns + self.set_by_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def passes(self, seconds: float) -> None:
        """Time passes; each sample has a number of its own as its share."""
        for _ in range(round(seconds * 10)):
            self.now_ns += 101 * MS + 3 * US
            number = len(self.true)
            self.true[number] = self.now_ns - 3 * MS
            self._kept = [*self._kept, ((self.time_ns() - 3 * MS) // US, number)][-20:]

    def nvmlDeviceGetSamples(self, _handle: object, _kind: int, since: int) -> tuple[int, list[object]]:  # noqa: N802
        found = [(at, share) for at, share in self._kept if at > since]
        if not found:
            raise pynvml.NVMLError_NotFound
        return 1, [
            SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=share)) for at, share in found
        ]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(nvml_samples, "time", made)
    monkeypatch.setattr(nvml_processes, "time", made)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetSamples", made.nvmlDeviceGetSamples)
    return made


@pytest.mark.parametrize("by_s", [-3600, -10, -0.5, 0.5, 10, 3600])
def test_each_sample_of_a_gpu_is_reported_once_with_its_time_though_the_clock_is_set(
    driver: Driver, by_s: float
) -> None:
    samples, told = nvml_samples.UtilizationSamples(), []
    for turn in range(40):
        driver.passes(0.5)
        if turn == 20:
            driver.set_by_ns = int(by_s * S)
            driver.passes(0.2)  # samples of both clocks are held when gputop looks
        told += samples.read(object())
    assert len({share for _, share in told}) == len(told)
    for at, share in told:
        assert abs(at - driver.true[share]) < 2 * US
    missing = sorted(
        set(range(10, len(driver.true))) - {share for _, share in told}
    )  # before: looked back 1 s
    assert len(missing) <= 7, "more than one round is lost"


def test_a_clock_that_is_only_slewed_loses_no_sample(driver: Driver) -> None:
    samples, told = nvml_samples.UtilizationSamples(), []
    for _ in range(40):
        driver.passes(0.5)
        driver.set_by_ns += 250 * US  # 500 ppm, the most that the kernel does
        told += samples.read(object())
    assert [share for _, share in told] == list(range(len(driver.true)))


def test_what_a_process_used_is_not_taken_from_the_future_of_a_clock_that_was_set_back(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sample(at_ns: int, share: int) -> object:
        return SimpleNamespace(pid=7, timeStamp=at_ns // US, smUtil=share, memUtil=0, encUtil=0, decUtil=0)

    now = driver.time_ns()
    held = [sample(now + HOUR, 90), sample(now - S // 2, 20)]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", lambda *_: held)
    assert nvml_processes.ProcessUse().read(object())[7][nvml_processes.USE[0]] == 20


# -- recordings over a step ------------------------------------------------------------------------


def recorded(path: Path, shown_ns: list[int]) -> SessionReader:
    """A recording with a mark a second, at each of which the clock showed so much."""
    clock = {"monotonic_ns": 100 * S, "realtime_ns": shown_ns[0] - S, "utc_offset_s": 0}
    writer = SessionWriter(path, {"clock": clock, "start_ns": 100 * S, "rate_hz": 1.0, "machine": {}})
    for number, shown in enumerate(shown_ns, 1):
        data = {"number": number, "wall_ns": shown, "lost": {}, "read": 1, "begun": 1}
        writer.write(Sample(MARK, (100 + number) * S, data))
    writer.close()
    return SessionReader(path)


FORWARD = [NOON + second * S + (HOUR if second >= 5 else 0) for second in range(10)]
BACK = [NOON + second * S - (HOUR if second >= 5 else 0) for second in range(10)]
OVER_MIDNIGHT = [NOON + 12 * HOUR - 3 * S + second * S + (HOUR if second >= 5 else 0) for second in range(10)]


@pytest.mark.parametrize("shown", [FORWARD, BACK, OVER_MIDNIGHT, [NOON + n * S for n in range(10)]])
def test_the_time_of_day_that_a_frame_shows_finds_that_frame(shown: list[int], tmp_path: Path) -> None:
    reader = recorded(tmp_path / "kept", shown)
    for index in range(10):
        text = format_clock(frame_at(reader, index).wall_ns, 0)
        assert mark_index(reader, text) == index, text
    reader.close()


def test_a_time_that_the_clock_jumped_over_is_the_last_mark_before_it(tmp_path: Path) -> None:
    reader = recorded(tmp_path / "kept", FORWARD)
    assert mark_index(reader, "12:30:00") == 4
    reader.close()


@pytest.mark.parametrize("text", ["12:00:07", "11:30:00", "11:00:12"])
def test_a_time_that_the_clock_did_not_show_is_refused(text: str, tmp_path: Path) -> None:
    reader = recorded(tmp_path / "kept", BACK)
    with pytest.raises(CommandError, match="set meanwhile"):
        mark_index(reader, text)
    reader.close()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clock") / "sets_clock.so"
    source = ROOT / "tests" / "failing" / "sets_clock.c"
    subprocess.run(["cc", "-O1", "-Wall", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


def walls(reader: SessionReader) -> Iterator[int]:
    for index in range(len(reader.marks)):
        mark = reader.mark(index)
        assert mark is not None
        yield int(mark.data["wall_ns"])


@pytest.mark.ebpf
@pytest.mark.long
def test_a_recording_goes_on_as_if_nothing_were_while_the_clock_is_set(library: Path, tmp_path: Path) -> None:
    """The real gputop over the simulated GPU; the wall clock of both moves by an hour, and later back."""
    off_by, kept = tmp_path / "off-by", tmp_path / "kept"
    off_by.write_text("0")
    program = [sys.executable, "-I", str(ROOT / "gputop" / "__main__.py")]
    demo = [*program, "demo", "healthy", "--alone", "--duration", "60"]
    environment = os.environ | {
        "LD_PRELOAD": str(library),
        "CLOCK_OFF_BY": str(off_by),
        "SIMGPU_INIT_MS": "0",
        **SLEEPS,
    }
    begun = time.monotonic_ns()
    recorder = subprocess.Popen(
        [*program, "record", "--lines", "off", "-o", str(kept), "--simgpu", "--", *demo],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    try:
        for number, by_s in enumerate((0, 3600, 0), 1):
            off_by.write_text(str(by_s))
            wait_until(lambda enough=7 * number: marks(kept) >= enough, "more is recorded")
        recorder.send_signal(signal.SIGTERM)
        recorder.wait(HANGS_S)
    finally:
        recorder.kill()
        recorder.wait()
    lasted = time.monotonic_ns() - begun
    assert complete(kept)
    reader = SessionReader(kept)
    try:
        at_ns, shown = reader.marks.astype(np.int64), np.array(list(walls(reader)))
        assert (np.diff(at_ns) > 0).all()
        assert at_ns[-1] - at_ns[0] < lasted
        steps = np.diff(shown) - np.diff(at_ns)
        forth, at = np.flatnonzero(abs(steps) > S)
        assert abs(steps[forth] - HOUR) < 50 * MS
        assert abs(steps[at] + HOUR) < 50 * MS
        frames = [frame_at(reader, index) for index in (forth, at, len(at_ns) - 1)]
        for frame in frames:
            assert 0 < frame.window_ns < lasted
            assert all(row.exited_ns is None or row.exited_ns <= frame.time_ns for row in frame.processes)
        last = len(at_ns) - 1
        assert mark_index(reader, format_clock(int(shown[last]), frames[-1].utc_offset_s)) >= at
        rounds = {sample.time_ns: sample.data["gpus"] for sample in reader.samples("gpus")}
        told = [at for rows in rounds.values() for row in rows for at, _ in row["utilization_samples"] or ()]
        assert told == sorted(set(told))
        assert at_ns[0] - 2 * S < told[0]
        assert at_ns[at] < told[-1] <= at_ns[-1], "utilisation is not told any more"
        assert any(at_ns[forth] < moment < at_ns[at] for moment in told), "nor while it was set"
    finally:
        reader.close()
