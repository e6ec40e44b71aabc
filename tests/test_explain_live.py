"""The live explanation on real eBPF: in time, cheap, and the same again from a recording."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis import live
from gputop.analysis.answer.report import Report
from gputop.analysis.build import ledger_of
from gputop.analysis.incremental import ExplainSchedule, Fresh, Looks, Whole
from gputop.analysis.live import LiveExplainer, ReplayExplainer
from gputop.analysis.report_update import Counted
from gputop.analysis.window import WINDOW_NS, Verdict, Window
from gputop.playback.player import ReplayFeed
from probes import api
from probes.observe.live_source import LiveSource
from probes.schema import CallFlag, Kind
from probes.source import Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import fake_reports
from tests.observed_demo import observed
from tests.programs import started
from tests.random_recording import recording
from tests.session_data import write
from tests.waiting import wait_until

RECORDINGS = Path(__file__).parent.parent / "recordings"
NOTHING = ledger_of(started().evidence())[0]


def explained(source: LiveSource, file: Path, enough: Callable[[list[Verdict]], bool]) -> list[Verdict]:
    """What is explained live, one after the other, until it is enough or three minutes have passed."""
    verdicts: list[Verdict] = []
    writer = SessionWriter(file, source.header)
    explainer = LiveExplainer(source.header, verdicts.append)
    explainer.start()
    deadline = time.monotonic() + 180
    for item in source.items():
        writer.write(item)
        explainer.feed(item)
        if enough(verdicts) or time.monotonic() > deadline:
            break
    explainer.close()
    writer.close()
    source.close()
    assert explainer.failure == ""
    return verdicts


def names(verdict: Verdict, cause: str, level: str) -> bool:
    """Whether a cause is named, at that level."""
    return any((finding.cause, finding.level) == (cause, level) for finding in verdict.report.findings)


def waits_ended(reader: SessionReader) -> list[int]:
    """When each outermost wait for a stream had returned."""
    ops = [row for row, call in enumerate(api.BY_OP) if call.name == "cudaStreamSynchronize"]
    times: list[int] = []
    for item in reader.items():
        if not isinstance(item, Sample):
            outer = (item["kind"] == Kind.CALL) & ((item["flags"] & CallFlag.NESTED) == 0)
            times += item["t_end"][outer & np.isin(item["op"], ops)].tolist()
    return sorted(times)


@pytest.mark.ebpf
@pytest.mark.timed
def test_what_repeats_is_reported_by_the_second_explanation_after_its_third_time(tmp_path: Path) -> None:
    file = tmp_path / "session.msgpack"
    with observed("numpy-sync") as source:
        verdicts = explained(source, file, lambda made: bool(made) and names(made[-1], "C02", "proved"))
    third = waits_ended(SessionReader(file))[2]
    after = [verdict for verdict in verdicts if verdict.end_ns >= third]
    assert any(names(verdict, "C02", "proved") for verdict in after[:2])


@pytest.mark.dear
@pytest.mark.ebpf
def test_a_recording_explains_each_moment_as_it_was_explained_live(tmp_path: Path) -> None:
    file = tmp_path / "session.msgpack"
    with observed("numpy-sync") as source:
        # the last ones no longer see the beginning
        late_ns = int(source.header["start_ns"]) + 1.2 * WINDOW_NS
        verdicts = explained(source, file, lambda made: len(made) > 5 and made[-1].end_ns > late_ns)
    reader = SessionReader(file)
    explainer = ReplayExplainer(reader)
    marks = reader.marks.tolist()
    assert len(verdicts) > 5
    assert verdicts[-1].report.findings
    # in an order that jumps back and forth
    for verdict in sorted(verdicts, key=lambda verdict: verdict.end_ns % 977):
        assert explainer.verdict_at(marks.index(verdict.end_ns)) == verdict


def costing(clock: dict[str, float], cpu_s: float, report: Report | None = None) -> Callable[[], Whole]:
    """An explanation that takes so much CPU."""

    def explain() -> Whole:
        clock["cpu"] += cpu_s
        verdict = Verdict(
            report or fake_reports.report(), 2, 1, fake_reports.lanes(), counted=Counted(0, 0, {})
        )
        return Whole(verdict, NOTHING)

    return explain


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The time, and the CPU that was taken: they go on as a test says."""
    clock = {"wall": 100.0, "cpu": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["wall"])
    monkeypatch.setattr(time, "thread_time", lambda: clock["cpu"])
    return clock


def test_cheap_explanations_come_more_often_than_once_a_second(clock: dict[str, float]) -> None:
    pace = ExplainSchedule()
    pace.explain(costing(clock, 0.0))
    assert not pace.due
    clock["wall"] = 100.99
    assert pace.due


def test_a_costly_explanation_comes_less_often(clock: dict[str, float]) -> None:
    pace = ExplainSchedule()
    assert pace.due
    pace.explain(costing(clock, 0.045))
    clock["wall"] = 102.9
    assert not pace.due, "45 ms are 1.5 % of 3 s"
    clock["wall"] = 103.1
    assert pace.due


def test_it_comes_sooner_while_what_is_seen_contradicts_it(clock: dict[str, float]) -> None:
    pace = ExplainSchedule()
    pace.explain(costing(clock, 0.3))
    clock["wall"] = 104.9
    assert not pace.due_at_once
    clock["wall"] = 105.1
    assert pace.due_at_once
    assert not pace.due, "300 ms are 1.5 % of 20 s, and 6 % of 5 s"


def test_haste_that_does_not_help_ends(clock: dict[str, float]) -> None:
    pace, waits = ExplainSchedule(), []
    for _ in range(8):
        pace.explain(costing(clock, 0.3))
        began = clock["wall"]
        while not pace.is_due(contradicted=True):
            clock["wall"] += 0.5
        waits.append(clock["wall"] - began)
    assert waits == [5.0, 10.0, 10.0, 20.0, 20.0, 20.0, 20.0, 20.0]
    clock["wall"] += 40.0
    assert pace.is_due(contradicted=False)
    pace.explain(costing(clock, 0.3))
    clock["wall"] += 5.0
    assert pace.is_due(contradicted=True), "what follows an agreement is news"


@pytest.mark.parametrize("slower", [1, 4])
def test_haste_is_eased_too(clock: dict[str, float], slower: int) -> None:
    pace = ExplainSchedule()
    pace.slower = slower
    pace.explain(costing(clock, 0.3))
    clock["wall"] += slower * 5.0 - 0.1
    assert not pace.is_due(contradicted=True)
    clock["wall"] += 0.2
    assert pace.is_due(contradicted=True)


def test_while_the_causes_stay_the_same_it_is_explained_half_as_often(clock: dict[str, float]) -> None:
    pace, waits = ExplainSchedule(), []
    calm = fake_reports.report(fake_reports.finding())
    other = replace(calm, findings=(replace(calm.findings[0], cause="C09"),))
    for report in (calm, calm, calm, other):
        pace.explain(costing(clock, 0.3, report))
        began = clock["wall"]
        while not pace.is_due(contradicted=False):
            clock["wall"] += 1.0
        waits.append(clock["wall"] - began)
    assert waits == [20.0, 40.0, 40.0, 20.0]


def test_a_look_comes_every_second_whatever_it_costs(clock: dict[str, float]) -> None:
    class Dear(Fresh):
        def look(self, window: Window, slower: int = 1) -> Verdict | None:
            clock["cpu"] += 10.0
            return None

    looks = Looks()
    looks.look(Dear(), Window({}))
    clock["wall"] += 0.9 + 1e-6
    assert looks.due, "at the fourth mark of a second"


def test_an_explanation_that_fails_says_so_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Window, item: Item) -> bool:
        raise KeyError("bytes")

    monkeypatch.setattr(Window, "feed", broken)
    explainer = LiveExplainer({"start_ns": 1})
    explainer.start()
    explainer.feed(Sample("mark", 2, {}))
    wait_until(lambda: explainer.failure, "what it says")
    assert explainer.failure == "the explanation stopped: KeyError: 'bytes'"
    explainer.feed(Sample("mark", 3, {}))
    explainer.close()


class _Noting(SessionReader):
    """A recording that notes from where it is read."""

    begins: list[int]

    def items_between(self, begin: int, end: int) -> Iterator[Item]:
        self.begins.append(begin)
        return super().items_between(begin, end)


@pytest.mark.slow
@pytest.mark.long
def test_jumps_in_a_long_recording_use_checkpoints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(live, "CHECKPOINT_NS", 500_000_000)
    reader = _Noting(write(tmp_path / "session.msgpack", list(recording(seed=1))))
    reader.begins = []
    last = len(reader.marks) - 1
    jumps = (last, 3, 9, 2, last - 1)
    plain, jumping, wanted = Window(reader.header), ReplayExplainer(reader), {}
    for index, _ in enumerate(item for item in reader.items() if plain.feed(item)):
        if index in jumps:
            wanted[index] = plain.verdict()
    reader.begins.clear()
    for index in jumps:
        assert jumping.verdict_at(index) == wanted[index]
    assert reader.begins[0] == -1, "all is read once"
    assert reader.begins[-1] > 9, "the way back to the end begins at a checkpoint"


def test_the_player_explains_where_it_stands() -> None:
    reader = SessionReader(RECORDINGS / "dataloader.msgpack")
    feed = ReplayFeed(reader, 0, playing=False)
    feed.start()

    try:
        wait_until(lambda: feed.explained().end_ns == feed.start_ns, "the explanation of its start")
        feed.seek(feed.end_ns)
        # nothing is explained after the program's end, which is some ms before the last mark
        wait_until(lambda: feed.explained().end_ns >= int(reader.marks[-2]), "the explanation of its end")
        assert feed.explained().end_ns <= feed.end_ns
        report = feed.explained().report
        assert report is not None
        assert report.findings
        feed.step(-1)
        wait_until(lambda: feed.explained().end_ns == int(reader.marks[-2]), "the mark before")
        feed.seek(feed.start_ns)
        wait_until(lambda: feed.explained().end_ns == feed.start_ns, "its start again")
    finally:
        feed.close()
        reader.close()
    assert threading.active_count() < 10
