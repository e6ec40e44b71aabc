"""One loss is worded once: text, Markdown, HTML, the chain page and the WHY panel give the same figures."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.answer.report import (
    Account,
    Finding,
    Level,
    LongStep,
    LongSteps,
    Range,
    Report,
    StepFacts,
)
from gputop.analysis.answer.report_output import report_to_markdown, report_to_text
from gputop.analysis.answer.wording import cost_text, finding_block, loss_text, share_text, steps_text
from gputop.analysis.findings.diagnosis import by_losses, class_of
from gputop.analysis.window import Verdict, Window
from gputop.commands.screen.text import verdict_text
from gputop.playback.feed import Explained
from gputop.report_page.findings_html import findings as page_findings
from gputop.report_page.findings_html import rest as page_rest
from gputop.ui.model.answer.chain_page import ChainPage
from gputop.ui.model.answer.why import panel_cause, why_of
from gputop.ui.model.answer.whylines import about_text, range_text
from gputop.ui.model.look import ASCII, UNICODE, plain
from gputop.ui.model.time.blocklanes import Look, idle_range
from gputop.ui.model.time.lanehistory import LaneHistory
from gputop.ui.model.time.timeblocks import TimeBlocks
from replay.reader import SessionReader
from tests import fake_frames, fake_reports
from tests.each_recording import RECORDINGS, REPORTS, report_of
from tests.fake_reports import MS, S

OPEN = Range(0, 990 * MS)  # nothing is proved, nobody estimates
NARROW = Range(2_160 * MS, 2_240 * MS, 2_230 * MS)
ASSUMED = Range(2_150 * MS, 2_600 * MS, 2_400 * MS)


def of_loss(loss: Range, **changes: object) -> Report:
    """A report of one second with one finding."""
    one = replace(fake_reports.finding(), loss=loss, per_step_ns=None, **changes)  # type: ignore[arg-type]
    return replace(fake_reports.report(one), span_ns=S, duration_ns=S)


def chain_page(report: Report) -> str:
    page = ChainPage()
    page.show(Explained(report))
    lines = page.lines(200, UNICODE, replay=False)
    return "\n".join("".join(text for text, _token in line) for line in lines)


def renderings(report: Report) -> dict[str, str]:
    """The finding's part of each renderer, as plain text."""
    page = re.sub(r"<[^>]+>", "", page_findings(report) + page_rest(report))
    return {
        "text": report_to_text(report, 300),
        "markdown": report_to_markdown(report).replace("`", ""),
        "page": html.unescape(page),
        "chain": chain_page(report),
    }


@pytest.mark.parametrize("loss", [OPEN, NARROW, ASSUMED, Range(500 * MS, 500 * MS)])
def test_all_renderers_give_the_same_loss_share_and_saving(loss: Range) -> None:
    report = of_loss(loss)
    block = finding_block(report.findings[0], report)
    shown = renderings(report)
    share = share_text(loss, report.span_ns)
    for name in ("text", "markdown", "page"):
        assert block.cost in shown[name], name
        assert block.saves in shown[name], name
        assert f", {share} % of the time" in shown[name], name
    assert f"{share}%" in shown["chain"]
    cause = panel_cause(report.findings[0], report)
    assert range_text(cause.low, cause.high, UNICODE) == f"{share} %"
    assert range_text(cause.low, cause.high, ASCII) == f"{share_text(loss, report.span_ns, '-')} %"


def test_a_loss_without_an_estimate_has_its_bounds_for_a_share_everywhere() -> None:
    for name, shown in renderings(of_loss(OPEN)).items():
        assert "0–99" in shown, name
        assert not re.search(r"\b(49|50) ?%", shown), name


def test_the_one_figure_of_a_loss_is_the_same_in_long_and_in_short() -> None:
    assert loss_text(NARROW) == cost_text(NARROW) == "2.23s"
    for loss in (NARROW, ASSUMED, Range(5 * MS, 5 * MS), Range(1_000 * MS, 1_020 * MS)):
        assert cost_text(loss) in loss_text(loss), loss


def test_what_rests_on_an_assumption_is_not_called_proved() -> None:
    report = of_loss(ASSUMED, idle_level=Level.STRONG, level=Level.STRONG)
    for name, shown in renderings(report).items():
        assert "2.15s strong" in shown, name
        assert "2.15s proved" not in shown, name
    assert "2.15s proved" in report_to_text(of_loss(ASSUMED), 300)


@pytest.mark.parametrize("gpus", [1, 8])
def test_the_class_has_the_share_that_its_findings_have(gpus: int) -> None:
    """Eight GPUs of which each loses half: the class took half of the time, not all of it."""
    account = Account(S, S // 2, 0, S // 2, 0, 0, 0, "nvml", True, None, Range(S // 2, S // 2))
    loss = Range(400 * MS, 520 * MS, 500 * MS)
    found = [replace(fake_reports.finding(), loss=loss, pid=pid) for pid in range(1, gpus + 1)]
    kinds = [class_of(one) for one in found]
    diagnosis = by_losses(found, kinds, 0.0, gpus * S, [account] * gpus)
    assert diagnosis is not None
    assert diagnosis.evidence == ("accounts for 40–50 % of the time",)
    half_started = replace(account, outside_ns=S // 2)
    of_loop = by_losses(found, kinds, 0.0, gpus * S // 2, [half_started] * gpus)
    assert of_loop is not None
    assert of_loop.evidence == diagnosis.evidence


@pytest.mark.parametrize(("count", "many"), [(1, "1 long one takes"), (2, "2 long ones take")])
def test_long_steps_agree_in_number(count: int, many: str) -> None:
    far = LongSteps(9 * S, count, 5 * S, tuple(LongStep(S, 5 * S // count) for _ in range(count)))
    assert f": {many} 5.00s (" in steps_text(StepFacts(30, 3 * MS, 4 * MS, 7, 7, far))


def test_findings_of_several_processes_that_read_alike_name_their_process() -> None:
    one = of_loss(NARROW)
    several = replace(one, findings=tuple(replace(one.findings[0], pid=pid) for pid in (7, 8)))
    for name, shown in renderings(several).items():
        for pid in (7, 8):
            assert re.search(rf"process {pid}\b|\({pid}\)", shown), (name, pid)
    for name, shown in renderings(one).items():
        assert "(process" not in shown, name


@pytest.mark.parametrize("waste", [0, 300 * MS])
def test_a_class_accounts_for_no_more_time_than_the_gpus_were_idle(waste: int) -> None:
    """Of the findings of three processes the upper ends were 100 % of a time of which 82 % were idle."""
    account = Account(S, S // 4, S // 2, S // 4, 0, 0, 0, "nvml", True, None, Range(S // 4, 9 * S // 10))
    losses = [Range(100 * MS, 700 * MS, 500 * MS), Range(0, 800 * MS), Range(0, 700 * MS)]
    found = [replace(fake_reports.finding(), loss=loss, pid=pid) for pid, loss in enumerate(losses, 1)]
    if waste:
        found.append(replace(found[0], kind="waste", loss=Range(0, waste)))
    diagnosis = by_losses(found, [class_of(found[0])] * len(found), 0.0, S, [account])
    assert diagnosis is not None
    (told,) = diagnosis.evidence
    assert told == f"accounts for 10–{75 if not waste else 100} % of the time"


def verdicts(recording: Path) -> list[Verdict]:
    """Explanations of a recording, every three seconds."""
    reader = SessionReader(recording)
    window, found = Window(reader.header), []
    marks, last = reader.marks, 0
    for item in reader.items_between(-1, len(marks) - 1):
        if window.feed(item) and window.end_ns - last > 3 * S:
            last = window.end_ns
            found.append(window.verdict())
    return found


@pytest.mark.parametrize("name", ["storm", "numpy-sync", "dataloader", "healthy"])
def test_the_timeline_has_the_idle_range_of_the_why_panel(name: str) -> None:
    told = 0
    for verdict in verdicts(RECORDINGS[0].with_name(f"{name}.msgpack")):
        if verdict.report.span_ns < S:
            continue
        history = LaneHistory()
        history.append(verdict.lanes)
        frame = replace(fake_frames.frame(), time_ns=verdict.end_ns)
        why = why_of(Explained(verdict.report, verdict.end_ns, verdict.start_ns), frame)
        for place, (label, _index) in enumerate(history.gpus):
            cells = history.cells(("gpu", label), verdict.lanes.first, verdict.lanes.columns, 1)
            found = idle_range(*cells, history.errors[place])
            panel = next(gpu for gpu in why.gpus if gpu.label == label)
            assert found == pytest.approx((panel.proved, panel.high), abs=0.015), (label, verdict.end_ns)
            told += 1
    assert told


@pytest.mark.parametrize("name", ["storm", "numpy-sync", "dataloader", "dataloader-workers"])
def test_where_the_timeline_shows_the_panels_window_it_has_its_very_figure(name: str) -> None:
    verdict = verdicts(RECORDINGS[0].with_name(f"{name}.msgpack"))[-1]
    told = Explained(verdict.report, verdict.end_ns, verdict.start_ns, lanes=verdict.lanes)
    frame = replace(fake_frames.frame(), time_ns=verdict.end_ns)
    blocks = TimeBlocks()
    blocks.append(told)
    lines = blocks.picture(160, 8, (), verdict.end_ns, Look(UNICODE, letters=False)).lines
    (gpu,) = why_of(told, frame).gpus
    panel = f"idle {range_text(gpu.proved, gpu.high, UNICODE)}"
    assert any(panel in plain(line) for line in lines), panel


@pytest.mark.parametrize("name", ["storm", "numpy-sync", "dataloader", "dataloader-workers"])
def test_once_and_the_panel_do_not_contradict_each_other(name: str) -> None:
    """Both have what is proved and the estimate; the panel how far that may be off, too."""
    whole = [one for one in verdicts(RECORDINGS[0].with_name(f"{name}.msgpack")) if one.report.span_ns >= S]
    assert whole
    for verdict in whole:
        frame = replace(fake_frames.frame(), time_ns=verdict.end_ns)
        panel = why_of(Explained(verdict.report, verdict.end_ns, verdict.start_ns), frame)
        said = verdict_text(verdict, None, verdict.end_ns)
        (gpu,) = panel.gpus
        about = re.search(r"was idle for (?:about )?([\d.]+) %", said)
        proved = re.search(r"\(([\d.]+) % proved\)", said)
        assert about, said
        low, *_, high = [*re.findall(r"[\d.]+", range_text(gpu.proved, gpu.high, UNICODE)) * 2]
        assert (proved or about)[1] == low
        assert float(low) <= float(about[1]) <= float(high)
        assert about[1] in re.findall(r"[\d.]+", about_text(gpu, UNICODE))
        assert f"[{panel.causes[0].number}, {panel.causes[0].level}]" in said


@REPORTS
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.stem)
def test_no_recording_contradicts_itself(recording: Path) -> None:
    report = report_of(recording)
    sure = sum(gpu.account.proved_ns for gpu in report.gpus)
    for finding in report.findings:
        block = finding_block(finding, report)
        assert ("proved, at most" in block.cost) <= (sure > 0), block.cost
        if finding.kind == "idle" and finding is first_idle(report):
            assert cost_text(finding.loss) in block.cost
    shares = [shown for one in (report.diagnosis,) if one for shown in one.evidence]
    for said in shares:
        if match := re.fullmatch(r"accounts for ([\d.]+)(?:–([\d.]+))? % of the time", said):
            assert float(match[match.lastindex or 1]) <= 100


def first_idle(report: Report) -> Finding | None:
    return next((one for one in report.findings if one.kind == "idle"), None)


def test_lanes_round_so_that_columns_stay_whole() -> None:
    from gputop.analysis.lanes import COLUMN_NS, WHOLE, rounded_shares

    parts = np.full((21, 3), COLUMN_NS // 21, np.int64)
    assert (rounded_shares(parts).astype(int).sum(axis=0) >= WHOLE - 1).all()
