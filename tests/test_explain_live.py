"""The live explanation on real eBPF: in time, cheap, and the same again from a recording."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from gputop.explain.answer.report import Finding
from gputop.explain.live import LiveExplainer, Pace, ReplayExplainer
from gputop.explain.window import Verdict, Window
from gputop.playback.feeds import LiveFeed
from gputop.playback.player import ReplayFeed
from gputop.playback.recorder import Recorder
from gputop.simgpu import build
from probes import api
from probes.live import LiveSource
from probes.plan import LivePlan
from probes.schema import CallFlag, Kind
from probes.source import Item, Sample
from replay.history import History
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import fake_reports

RECORDINGS = Path(__file__).parent.parent / "recordings"


@contextmanager
def observed(story: str) -> Iterator[LiveSource]:
    """A demo that is watched from its first call."""
    build.ensure_built()
    gate_in, gate_out = os.pipe()
    workload = subprocess.Popen(
        ["sh", "-c", f"read go; exec {sys.executable} -m gputop.demo {story} 60"],
        env=build.environment(os.environ),
        stdin=gate_in,
        stdout=subprocess.DEVNULL,
    )
    source = LiveSource(LivePlan(pids=(workload.pid,), environment=build.environment(os.environ)))
    try:
        source.start()
        os.write(gate_out, b"go\n")
        yield source
    finally:
        workload.kill()
        workload.wait()
        os.close(gate_in)
        os.close(gate_out)


class _Syncs:
    """A source that remembers when each outermost wait for a stream had returned."""

    def __init__(self, source: LiveSource) -> None:
        self.header = source.header
        self.times: list[int] = []
        self._source = source
        self._ops = [row for row, call in enumerate(api.BY_OP) if call.name == "cudaStreamSynchronize"]
        self.close = source.close

    def items(self) -> Iterator[Item]:
        for item in self._source.items():
            if not isinstance(item, Sample):
                outer = (item["kind"] == Kind.CALL) & ((item["flags"] & CallFlag.NESTED) == 0)
                self.times += item["t_end"][outer & np.isin(item["op"], self._ops)].tolist()
            yield item


def named(feed: LiveFeed, cause: str) -> Finding | None:
    """The finding of this cause in the newest explanation."""
    report = feed.explained().report
    found = report.findings if report is not None else ()
    return next((finding for finding in found if finding.cause == cause), None)


@pytest.mark.ebpf
@pytest.mark.alone
def test_what_repeats_is_told_within_a_second_of_its_third_time() -> None:
    with observed("numpy-sync") as source:
        syncs = _Syncs(source)
        feed = LiveFeed(syncs)
        feed.start()
        deadline = time.monotonic() + 60
        while (finding := named(feed, "C02")) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        seen = time.monotonic_ns()
        feed.close()
    assert finding is not None
    assert finding.level == "proved"
    late = (seen - syncs.times[2]) / 1e9
    assert late < 1.0, f"told {late:.2f} s after the third wait"


class _Verdicts(LiveFeed):
    """A live feed that keeps every explanation."""

    def __init__(self, source: LiveSource, writer: SessionWriter) -> None:
        super().__init__(source, recorder=Recorder(History(source.header), writer))
        self.verdicts: list[Verdict] = []
        explain = self._explainer._pace.explain

        def keep(window: Window) -> Verdict:
            verdict = explain(window)
            self.verdicts.append(verdict)
            return verdict

        self._explainer._pace.explain = keep  # type: ignore[method-assign]


@pytest.mark.ebpf
@pytest.mark.alone
def test_a_recording_explains_each_moment_as_it_was_explained_live(tmp_path: Path) -> None:
    with observed("numpy-sync") as source:
        writer = SessionWriter(tmp_path / "session.msgpack", source.header)
        feed = _Verdicts(source, writer)
        feed.start()
        time.sleep(12.5)
        feed.close()
    assert feed.failure() is None
    reader = SessionReader(tmp_path / "session.msgpack")
    explainer = ReplayExplainer(reader)
    marks = reader.marks.tolist()
    assert len(feed.verdicts) > 5
    assert feed.verdicts[-1].report.findings
    # in an order that jumps back and forth
    for verdict in sorted(feed.verdicts, key=lambda verdict: verdict.end_ns % 977):
        assert explainer.verdict_at(marks.index(verdict.end_ns)) == verdict


def test_a_costly_explanation_comes_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"wall": 100.0, "cpu": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["wall"])
    monkeypatch.setattr(time, "thread_time", lambda: clock["cpu"])

    class Costly:
        def verdict(self) -> Verdict:
            clock["cpu"] += 0.05
            return Verdict(fake_reports.report(), 2, 1, fake_reports.lanes())

    pace = Pace()
    assert pace.due
    pace.explain(Costly())  # type: ignore[arg-type]
    clock["wall"] = 102.4
    assert not pace.due, "50 ms are 2 % of 2.5 s"
    clock["wall"] = 102.6
    assert pace.due


def test_an_explanation_that_fails_says_so_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Window, item: Item) -> bool:
        raise KeyError("bytes")

    monkeypatch.setattr(Window, "feed", broken)
    explainer = LiveExplainer({"start_ns": 1})
    explainer.start()
    explainer.feed(Sample("mark", 2, {}))
    deadline = time.monotonic() + 20
    while not explainer.failure and time.monotonic() < deadline:
        time.sleep(0.01)
    assert explainer.failure == "the explanation stopped: KeyError: 'bytes'"
    explainer.feed(Sample("mark", 3, {}))
    explainer.close()


def test_jumps_in_a_long_recording_use_checkpoints() -> None:
    reader = SessionReader(RECORDINGS / "dataloader.msgpack")
    plain, jumping = Window(reader.header), ReplayExplainer(reader)
    jumping._spacing_ns = 500_000_000
    wanted = [plain.verdict() for item in reader.items() if plain.feed(item)]
    assert len(jumping._checkpoints) == 1
    for index in (len(wanted) - 1, 3, 9, 2, len(wanted) - 2):
        assert jumping.verdict_at(index) == wanted[index]
    assert len(jumping._checkpoints) > 4


def test_the_player_explains_where_it_stands() -> None:
    reader = SessionReader(RECORDINGS / "dataloader.msgpack")
    feed = ReplayFeed(reader, 0, playing=False)
    feed.start()

    def explained_at(position: int) -> bool:
        deadline = time.monotonic() + 10
        while feed.explained().end_ns != position and time.monotonic() < deadline:
            time.sleep(0.01)
        return feed.explained().end_ns == position

    try:
        assert explained_at(feed.start_ns)
        feed.seek(feed.end_ns)
        assert explained_at(feed.end_ns)
        report = feed.explained().report
        assert report is not None
        assert report.findings
        feed.step(-1)
        assert explained_at(int(reader.marks[-2]))
        feed.seek(feed.start_ns)
        assert explained_at(feed.start_ns)
    finally:
        feed.close()
        reader.close()
    assert threading.active_count() < 10
