"""Between two whole explanations the verdict follows what happens, and says what the whole one would say."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from gputop.analysis.answer.picture import BUSY, PROVED, SKIPPED, Lanes
from gputop.analysis.answer.report import Report
from gputop.analysis.answer.wording import saved_of_step
from gputop.analysis.chains.analysis import analyse
from gputop.analysis.findings import step_findings
from gputop.analysis.incremental import Fresh, explained
from gputop.analysis.live import LiveExplainer
from gputop.analysis.window import Verdict, Window
from gputop.ui.model.answer.why import idle_of
from gputop.ui.model.time.blocklanes import idle_range
from gputop.ui.model.time.lanehistory import LaneHistory
from probes.schema import Kind, Records
from probes.source import GPUS, MARK, Item, Sample
from replay.reader import SessionReader
from tests import items
from tests.items import MS, SECOND, START
from tests.observed_demo import observed
from tests.proved_gaps import Gap, gaps_of
from tests.random_recording import recording, ticked
from tests.waiting import until_good

RECORDINGS = Path(__file__).parent.parent / "recordings"
STREAM, STEP_MS = 0x5000, 10
SECONDS = 8  # of a program that calls all the time


def busy_then_idle(change_s: float, seconds: float, idle_ms: int = 8) -> list[Records]:
    """A program that waits for its stream each step; after the change the host works in most of the step."""
    records = [items.event(Kind.FORK, START + 1, pid=10, tid=10)]
    for number in range(int(seconds * 1000 / STEP_MS)):
        begin = START + number * STEP_MS * MS
        late = number * STEP_MS >= change_s * 1000
        wait = STEP_MS * MS - (idle_ms * MS if late else MS // 2)
        records.append(items.call(begin + 5_000, 5_000, stream=STREAM))
        records.append(items.call(begin + wait, wait - 10_000, "cudaStreamSynchronize", stream=STREAM))
    return records


def session(records: list[Records], nvml: Iterable[Sample] = ()) -> list[Item]:
    """The items of a session with such records, and what NVML said."""
    samples = list(nvml)
    made: list[Item] = [items.apis(), items.process(10, cuda_visible_devices=None), items.gpus(START, 0)]
    for item in ticked(records):
        if isinstance(item, Sample) and item.kind == MARK:
            made += [
                sample for sample in samples if item.time_ns - SECOND // 4 <= sample.time_ns < item.time_ns
            ]
        made.append(item)
    return made


def looked(
    found: list[Item], whole_s: float, header: dict[str, object] = items.HEADER
) -> Iterator[tuple[float, Verdict, Window, Fresh]]:
    """(seconds, verdict, …) of a look at each mark after one whole explanation."""
    window, fresh, begun = Window(header), Fresh(), False
    for item in found:
        if not window.feed(item):
            continue
        seconds = (window.end_ns - window.start_ns) / 1e9
        if begun:
            verdict = fresh.look(window)
            assert verdict is not None
            yield seconds, verdict, window, fresh
        elif seconds >= whole_s:
            fresh.consume(explained(window))
            begun = True


@pytest.mark.parametrize("left_s", [0.5, 1, 2.3, 4])
@pytest.mark.parametrize("idle_ms", [3, 8])
def test_in_a_window_that_becomes_shorter_a_fix_saves_no_more_than_its_idle_time(
    left_s: float, idle_ms: int
) -> None:
    """Of a step it saves as much as before: only there are fewer of them."""
    window, fresh = Window(items.HEADER), Fresh()
    short = Window(items.HEADER, length_ns=int(left_s * SECOND))  # as of a rate at which no more is kept
    for item in session(busy_then_idle(0, SECONDS, idle_ms)):
        window.feed(item)
        short.feed(item)
    whole = fresh.consume(explained(window)).report
    looked_at = fresh.look(short)
    assert looked_at is not None
    report = looked_at.report
    (was,), (now,) = whole.findings, report.findings
    assert was.gain.ns > now.gain.ns
    assert now.gain.ns <= report.idle.upper
    assert whole.steps is not None
    assert report.steps is not None
    assert report.steps.count == pytest.approx(left_s * 1000 / STEP_MS, rel=0.05, abs=2)
    before, after = (saved_of_step(one, of) for one, of in ((was, whole), (now, report)))
    assert before is not None
    assert after is not None
    assert after[0] == pytest.approx(before[0], rel=0.02)


@pytest.mark.parametrize("late_s", [0.5, 2, 4])
def test_on_a_starved_machine_the_timeline_has_the_range_of_the_panel(late_s: float) -> None:
    """Looks come seconds apart; what lies between is in neither figure."""
    window, fresh, next_s = Window(items.HEADER), Fresh(), 4.0
    history = LaneHistory()
    for item in session(busy_then_idle(0, SECONDS + 2)):
        if not window.feed(item) or (window.end_ns - START) / 1e9 < next_s:
            continue
        next_s += late_s
        whole = fresh.look(window) is None
        verdict = fresh.consume(explained(window)) if whole else fresh.look(window)
        assert verdict is not None
        history.append(verdict.lanes)
        (gpu,) = verdict.report.gpus
        cells = history.cells(("gpu", gpu.label), verdict.lanes.first, verdict.lanes.columns, 1)
        panel = idle_of(gpu)
        assert idle_range(*cells, verdict.lanes.gpus[0].error) == pytest.approx(
            (panel.proved, panel.high), abs=0.02
        )
        skipped = int(np.count_nonzero(verdict.lanes.marks[SKIPPED]))
        assert (skipped > 0) == (not whole and late_s > 1), "by then what was skipped is all explained"
    assert next_s > 6


@pytest.mark.parametrize(("rarer", "holes"), [(1, True), (4, False)])
def test_looks_that_come_less_often_go_as_much_farther_back(rarer: int, holes: bool) -> None:
    """Three seconds after an explanation: what no look has seen is not known on the timeline."""
    window, fresh, looked_at, verdict = Window(items.HEADER), Fresh(), 0.0, None
    for item in session(busy_then_idle(0, 16)):
        if not window.feed(item):
            continue
        seconds = (window.end_ns - window.start_ns) / 1e9
        if seconds >= 12 and not looked_at:
            fresh.consume(explained(window))
            looked_at = seconds
        elif looked_at and seconds >= looked_at + 3:
            verdict = fresh.look(window, rarer)
            break
    assert verdict is not None
    (lane,) = verdict.lanes.gpus
    assert bool((lane.shares.sum(axis=0) == 0).any()) == holes


def idle_share(report: Report) -> float:
    return report.idle.lower / report.span_ns


def proved_within(mine: list[Gap], whole: list[Gap]) -> bool:
    """Whether all that is proved here is proved there, too."""
    return all(
        any(at[2] == one[2] and at[0] <= one[0] and one[1] <= at[1] and at[5] >= one[5] for at in whole)
        for one in mine
    )


@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.slow), 4, 5])
@pytest.mark.slow
@pytest.mark.mainly("1")
def test_the_newest_part_proves_nothing_else_than_everything_does_and_hardly_less(seed: int) -> None:
    window, compared, same, found = Window(items.HEADER), 0, 0, 0
    for number, item in enumerate(recording(seed)):
        if not window.feed(item) or window.end_ns < START + 4 * SECOND or number % 5:
            continue
        stretch = (window.end_ns - SECOND, window.end_ns)
        mine = gaps_of(analyse(window.newest(stretch[0]), stretch))
        whole = gaps_of(analyse(window.evidence(), stretch))
        assert proved_within(mine, whole), window.end_ns
        compared, same, found = compared + 1, same + (mine == whole), found + len(mine)
    assert compared > 10
    assert found > 10
    assert same >= 0.9 * compared


@pytest.mark.parametrize(
    "name",
    [
        *("dataloader", "dataloader-workers", "numpy-sync", "storm", "healthy"),
        pytest.param("redundant-to-device", marks=pytest.mark.long),
    ],
)
@pytest.mark.slow
@pytest.mark.mainly("dataloader-workers", "healthy")
def test_looks_add_up_to_what_a_whole_explanation_says_then(name: str) -> None:
    reader = SessionReader(RECORDINGS / f"{name}.msgpack")
    compared = 0
    found = looked(list(reader.items()), 1.2, dict(reader.header))
    for number, (seconds, verdict, window, _fresh) in enumerate(found):
        if seconds < 2.0 or number % 2:
            continue
        mine, whole = verdict.report, window.verdict().report
        assert mine.span_ns == pytest.approx(whole.span_ns, rel=0.05)
        assert idle_share(mine) == pytest.approx(idle_share(whole), abs=0.03)
        assert mine.idle.upper / mine.span_ns == pytest.approx(whole.idle.upper / whole.span_ns, abs=0.05)
        first = [report.findings[0].cause for report in (mine, whole) if report.findings]
        assert len({*first}) <= 1
        compared += 1
    reader.close()
    assert compared


def test_steps_are_summed_up_once_an_explanation_however_often_one_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summed: list[int] = []
    told = step_findings.long_steps
    monkeypatch.setattr(step_findings, "long_steps", lambda rows: (summed.append(len(rows)), told(rows))[1])
    looks = list(looked(session(busy_then_idle(9.0, 8.0)), 3.9))
    assert len(looks) > 10
    assert looks[-1][1].report.steps is not None
    assert len(summed) == 1


def test_what_begins_after_the_last_explanation_is_reported_within_a_second() -> None:
    found = looked(session(busy_then_idle(4.0, 9.0)), 3.9)
    seen = {seconds: (verdict, fresh.contradicted) for seconds, verdict, _window, fresh in found}
    verdict, contradicted = seen[min(at for at in seen if at >= 4.99)]
    assert verdict.report.findings[0].cause == "C28", "four times as long as the wait before it"
    assert idle_share(verdict.report) == pytest.approx((4 * 0.05 + 1 * 0.8) / 5, abs=0.02)
    assert contradicted, "so the next whole explanation comes sooner"
    late = seen[max(seen)][0]
    # 4 s of 5 % and 5 s of 80 %: what was injected
    assert idle_share(late.report) == pytest.approx((4 * 0.05 + 5 * 0.8) / 9, abs=0.02)
    assert late.detail_age_ns == pytest.approx(5 * SECOND, abs=SECOND // 2)


@pytest.mark.slow
def test_what_ends_after_the_last_explanation_goes_within_the_window() -> None:
    slow_first = busy_then_idle(0.0, 4.0)
    quick_then = busy_then_idle(16.0, 16.0)
    both = [one for one in slow_first if one["t_end"][0] < START + 4 * SECOND]
    both += [one for one in quick_then if one["t_end"][0] > START + 4 * SECOND + 10 * MS]
    last = list(looked(session(both), 3.9))[-1][1]
    assert not any(finding.loss.middle > 0.07 * last.report.span_ns for finding in last.report.findings)
    assert idle_share(last.report) == pytest.approx(0.05, abs=0.02)


@pytest.mark.slow
def test_nothing_new_changes_nothing() -> None:
    for _seconds, verdict, window, fresh in looked(session(busy_then_idle(0.0, 8.0)), 4.0):
        whole = window.verdict().report
        assert not fresh.contradicted
        assert [one.cause for one in verdict.report.findings] == [one.cause for one in whole.findings]
        assert verdict.report.diagnosis is not None
        assert whole.diagnosis is not None
        assert verdict.report.diagnosis.kind == whole.diagnosis.kind
        assert idle_share(verdict.report) == pytest.approx(idle_share(whole), abs=0.01)


def utilization(change_s: float, seconds: float) -> Iterator[Sample]:
    """NVML sees the GPU work all of the time, and from the change on hardly."""
    for number in range(1, int(seconds * 4)):
        at = number / 4
        busy = 95 if at <= change_s + 0.5 else 15
        row = {"index": 0, "uuid": "u", "name": "GPU", "utilization_percent": busy}
        yield Sample(GPUS, START + int(at * SECOND), {"gpus": [row]})


def never_waits(seconds: float) -> list[Records]:
    records = [items.event(Kind.FORK, START + 1, pid=10, tid=10)]
    records += [
        items.call(START + number * MS + 5_000, 5_000, stream=STREAM, aux=number % 7)
        for number in range(int(seconds * 1000))
    ]
    return records


@pytest.mark.slow
def test_where_nobody_waits_nvml_reports_that_it_is_otherwise_now() -> None:
    found = session(never_waits(12.0), utilization(6.0, 12.0))
    before: list[bool] = []
    last: Verdict | None = None
    for seconds, verdict, _window, fresh in looked(found, 5.5):
        if seconds < 6.0:
            before.append(fresh.contradicted)
        last = verdict
        contradicted = fresh.contradicted
    assert last is not None
    assert not any(before)
    assert contradicted
    report = last.report
    assert report.idle.lower == 0
    assert report.idle.estimate is not None
    # of the last ten seconds 4.5 at 5 % and 5.5 at 85 %
    assert report.idle.estimate / report.span_ns == pytest.approx((4.5 * 0.05 + 5.5 * 0.85) / 10, abs=0.1)


@pytest.mark.slow
def test_the_lanes_of_looks_have_no_holes_and_are_those_of_a_whole_explanation() -> None:
    reader = SessionReader(RECORDINGS / "dataloader.msgpack")
    last: tuple[Lanes, Lanes] | None = None
    for _seconds, verdict, window, _fresh in looked(list(reader.items()), 1.2, dict(reader.header)):
        last = verdict.lanes, window.verdict().lanes
    reader.close()
    assert last is not None
    mine, whole = last
    assert (mine.first + mine.columns) == (whole.first + whole.columns)
    first = max(mine.first, whole.first)
    mine_gpu = mine.gpus[0].shares[:, first - mine.first :].astype(int)
    whole_gpu = whole.gpus[0].shares[:, first - whole.first :].astype(int)
    for row in (BUSY, *range(PROVED, PROVED + 3)):
        assert np.abs(mine_gpu[row] - whole_gpu[row]).mean() < 6, row
    assert mine.threads[0].states.shape[1] == mine.columns


class Pace(NamedTuple):
    """What came of some seconds of a program that calls all the time."""

    calls: int
    apart_s: list[float]  # from verdict to verdict, of what they are about
    fresh: int  # verdicts that are no whole explanations

    def good(self) -> bool:
        """Whether a busy loop was traced, and a verdict came every second, also where the machine is busy."""
        if self.calls <= SECONDS * 10_000 or self.fresh < 3:
            return False
        return bool(np.median(self.apart_s) <= 1.0 and np.mean(np.array(self.apart_s) <= 1.3) > 0.8)


def pace() -> Pace:
    """Explains a program that makes runtime and driver calls all the time."""
    whole: list[Verdict] = []
    about: list[int] = []  # the end of what each verdict is about
    calls = 0
    with observed("healthy") as source:
        explainer = LiveExplainer(source.header, whole.append)
        explainer.start()
        until = time.monotonic() + SECONDS
        for item in source.items():
            explainer.feed(item)
            if not isinstance(item, Sample):
                calls += int((item["kind"] == Kind.CALL).sum())
            newest = explainer.verdict
            if newest is not None and about[-1:] != [newest.end_ns]:
                about.append(newest.end_ns)
            if time.monotonic() > until:
                break
        explainer.close()
        source.close()
    assert explainer.failure == ""
    apart_s = [(after - before) / 1e9 for before, after in pairwise(about)]
    return Pace(calls, apart_s, len(set(about) - {verdict.end_ns for verdict in whole}))


@pytest.mark.ebpf
@pytest.mark.timed
@pytest.mark.long
def test_at_twenty_thousand_calls_a_second_a_verdict_comes_every_second() -> None:
    found = until_good(pace, Pace.good, seconds=90)
    assert found.good(), found
