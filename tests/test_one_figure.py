"""One figure in one place: at each moment `--once`, WHY, timeline, step, chain page and reports say the same.

Each figure is read from the text and compared with the arithmetic of the report's ns, at moments of every
recording and of programs on several GPUs whose idle time is known.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.answer.report import Account, Finding, Report
from gputop.analysis.answer.report_output import report_to_markdown, report_to_text
from gputop.analysis.answer.wording import ends_of, saved_of_step
from gputop.analysis.incremental import Fresh, explained
from gputop.analysis.window import Verdict, Window
from gputop.commands.screen.text import render_text, verdict_text
from gputop.documents.fields import document
from gputop.engine.engine import Engine
from gputop.engine.frame import Frame
from gputop.playback.feed import Explained
from gputop.report_page.findings_html import findings as page_findings
from gputop.ui.model.answer.chain_page import ChainPage
from gputop.ui.model.answer.steady import Steady
from gputop.ui.model.answer.verdict import verdict_line
from gputop.ui.model.answer.why import Why, why_of
from gputop.ui.model.answer.why_narrow import narrow_lines
from gputop.ui.model.answer.whylines import why_lines
from gputop.ui.model.listing import process_table
from gputop.ui.model.look import UNICODE, Line, plain
from gputop.ui.model.process.waterfall import step_of, title
from gputop.ui.model.time.blocklanes import Look
from gputop.ui.model.time.timeblocks import TimeBlocks
from probes.schema import Kind
from probes.source import GPUS, Item, Sample
from replay.reader import SessionReader
from tests import items
from tests.each_recording import FILES as EACH
from tests.items import MS, SECOND, START
from tests.random_recording import ticked

UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10}
COLUMNS = tuple(one for one in process_table.process_table().columns if one.key != "spark")
EVERY_NS = 1_900_000_000  # between two moments
NUMBER = r"([\d.]+)"


def moments(
    header: dict[str, object], stream: Iterable[Item], *, looks: bool = False
) -> Iterator[tuple[Frame, Verdict]]:
    """(frame, explanation) of moments of a session, the last one among them.

    With ``looks`` light analyses follow an explanation, as on a live screen.
    """
    engine, window, last, fresh = Engine(header), Window(header), 0, Fresh()
    for item in stream:
        window.feed(item)
        if engine.feed(item) and window.end_ns - last >= EVERY_NS // (2 if looks else 1):
            last = window.end_ns
            verdict = fresh.look(window) if looks else window.verdict()
            yield engine.frame(), verdict or fresh.consume(explained(window))
    if window.end_ns != last and not looks:
        yield engine.frame(), window.verdict()


def text(lines: Iterable[Line]) -> str:
    return "\n".join(plain(line) for line in lines)


class Reader:
    """Compares figures of texts with arithmetic; ``seen`` counts what was compared."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.timeline, self.steady = TimeBlocks(), Steady()

    def percent(self, place: str, shown: str, share: float) -> None:
        """A share as it is written: to its last digit."""
        digits = len(shown.partition(".")[2])
        assert float(shown) == pytest.approx(100 * share, abs=0.501 * 10**-digits), (place, shown, share)
        self.seen[place] += 1

    def time(self, place: str, shown: str, ns: float) -> None:
        """A time as it is written: to two digits and more."""
        found = re.fullmatch(rf"{NUMBER} ?(ns|us|ms|s|m)", shown)
        assert found, (place, shown)
        digits = len(found[1].partition(".")[2])
        unit = UNITS[found[2]]
        assert float(found[1]) * unit == pytest.approx(ns, abs=0.51 * unit * 10**-digits), (place, shown, ns)
        self.seen[place] += 1

    def compare(self, frame: Frame, verdict: Verdict) -> None:
        """All places at one moment."""
        report = verdict.report
        once = verdict_text(verdict, None, frame.time_ns)
        shown = Explained(
            report, verdict.end_ns, verdict.start_ns, "", verdict.lanes, verdict.detail_age_ns, verdict.steps
        )
        self.sentence("once", once, report, report.findings)
        for place, words in (
            ("text", " ".join(report_to_text(report).split())),
            ("markdown", report_to_markdown(report).replace("`", "")),
            ("json", json.dumps(document(report), ensure_ascii=False)),
        ):
            assert report.verdict in words or report.verdict in words.replace("\\", ""), place
        screen = self.steady.ordered(shown)
        assert screen.report is not None
        self.chain(screen.report, screen)
        if report.gpus:
            self.panel(why_of(screen, frame), screen.report)
            self.lanes(screen, frame, report)
        self.step(screen)
        self.rows(frame)
        assert {_key(one): one.loss for one in screen.report.findings} == {
            _key(one): one.loss for one in report.findings
        }, "the screen holds places, never figures"

    def sentence(self, place: str, words: str, report: Report, findings: Iterable[Finding]) -> None:
        """``GPU 0 was idle for about 87 % of 1.24s (84 % proved), 1.04s of it because of this``."""
        found = re.search(
            rf"(?:was|were) idle for (?:about )?{NUMBER}(?: to {NUMBER})? % of (\S+?)[,.;:]?(?: |$)",
            words,
            re.M,
        )
        if found is None:
            return
        proved = sum(gpu.account.bounds.lower for gpu in report.gpus)
        self.time(f"{place}: window", found[3], report.span_ns)
        if found[2]:
            self.percent(f"{place}: lower", found[1], proved / report.span_ns)
            upper = sum(gpu.account.bounds.upper for gpu in report.gpus)
            self.percent(f"{place}: upper", found[2], upper / report.span_ns)
        else:
            about = sum(gpu.account.proved_ns + gpu.account.estimated_ns for gpu in report.gpus)
            self.percent(f"{place}: about", found[1], about / report.span_ns)
        if sure := re.search(rf"\({NUMBER} % proved", words):
            self.percent(f"{place}: proved", sure[1], proved / report.span_ns)
        if cost := re.search(r", ([\d.]+[a-z]+) of it because of this", words):
            number = re.search(r"\[(C\d\d), ", words)
            assert number
            mine = [one for one in findings if one.cause == number[1] and one.kind == "idle"]
            assert any(cost[1] in report_line(one) for one in mine), (place, cost[0])
            self.seen[f"{place}: cost"] += 1

    def chain(self, report: Report, screen: Explained) -> None:
        page = ChainPage()
        page.show(screen)
        words = text(page.lines(300, UNICODE, replay=False))
        assert report.verdict in " ".join(words.split())
        self.sentence("chain", " ".join(words.split()), report, report.findings)
        rows = re.findall(
            r"^[› ]\s*\d+ .*? (C\d\d) +(?:proved|strong|hint) .*? ([\d.]+)(?:–([\d.]+))?% *$",
            words,
            re.M,
        )
        assert len(rows) == len(report.findings) or not report.span_ns
        for (cause, low, high), finding in zip(rows, report.findings, strict=False):
            assert cause == finding.cause
            for shown, end in zip((low, high or low), ends_of(finding.loss), strict=True):
                self.percent("chain: share", shown, end / report.span_ns)
        if report.steps is not None and (found := re.search(r"(\d+) steps of (\S+) each", words)):
            assert int(found[1]) == report.steps.count
            self.time("chain: step", found[2], report.steps.usual_ns)
        if report.findings and (found := re.search(r"saves +up to (\S+)", words)):
            self.time("chain: saves", found[1].rstrip(":"), report.findings[0].gain.ns)
            page_words = re.sub(r"<[^>]+>", "", page_findings(report))
            assert f"saves up to {found[1].rstrip(':')}" in page_words
        if report.findings and (found := re.search(r": (\S+) of each (\S+) step", words)):
            step = saved_of_step(report.findings[0], report)
            assert step is not None
            self.time("chain: saved of a step", found[1], step[0])
            self.time("chain: of a step", found[2], step[1])

    def panel(self, why: Why, report: Report) -> None:
        """WHY at all its sizes: a figure that is shown is the report's."""
        drawn = [
            why_lines(why, width, height, UNICODE) for width in (64, 80, 120, 250) for height in (3, 4, 5)
        ]
        drawn += [narrow_lines(why, width, 7, UNICODE, focused=False) for width in (40, 60)]
        drawn += [[verdict_line(why, width, UNICODE, focused=False)] for width in (80, 120)]
        count = len(report.gpus)
        for lines in drawn:
            words = text(lines)
            for name, about, low, high in re.findall(
                rf"(GPU ?\d+) (?:idle )?(?:~{NUMBER} % \()?{NUMBER}(?:–{NUMBER})? %", words
            ):
                gpu = next(one for one in report.gpus if one.label.replace(" ", "") == name.replace(" ", ""))
                self.gpu_range("why", gpu.account, low, high or low)
                if about:
                    idle = gpu.account.proved_ns + gpu.account.estimated_ns
                    self.percent("why: about", about, idle / gpu.span_ns)
            for number, low, high, cause in re.findall(
                rf"^ (\d) {NUMBER}(?:–{NUMBER})? %.* (C\d\d)\b", words, re.M
            ):
                finding = report.findings[int(number) - 1]
                assert finding.cause == cause
                for shown, end in zip((low, high or low), ends_of(finding.loss), strict=True):
                    self.percent("why: share", shown, end / report.span_ns)
            if found := re.search(rf"saves up to {NUMBER} (ms|us|s)(/step)?", words):
                step = saved_of_step(report.findings[0], report)
                ns = step[0] if step is not None else report.findings[0].gain.ns
                assert bool(found[3]) == (step is not None)
                self.time("why: saves", f"{found[1]}{found[2]}", ns)
            if found := re.search(rf"{NUMBER} of {NUMBER} (ms|us|s)/step", words):
                assert report.steps is not None
                assert report.findings[0].per_step_ns is not None
                self.time("why: a step", f"{found[2]}{found[3]}", report.steps.usual_ns)
                self.time("why: lost of a step", f"{found[1]}{found[3]}", report.findings[0].per_step_ns)
        assert self.seen["why: lower"] >= count

    def gpu_range(self, place: str, account: Account, low: str, high: str) -> None:
        """Proved, and the most: with its error an estimate may lie above its upper bound no more."""
        self.percent(f"{place}: lower", low, account.proved_ns / account.span_ns)
        idle = account.proved_ns + account.estimated_ns
        most = max(min(idle + (account.error_ns or 0) + account.unknown_ns, account.bounds.upper), idle)
        self.percent(f"{place}: upper", high, most / account.span_ns)

    def lanes(self, screen: Explained, frame: Frame, report: Report) -> None:
        """The timeline: of the panel's window its very figure, else the window stands in the title."""
        self.timeline.append(screen)
        lines = self.timeline.picture(160, 20, (), frame.time_ns, Look(UNICODE)).lines
        whole = report.duration_ns <= 10 * SECOND
        for label, low, high in re.findall(rf"^(GPU \d+) .*idle {NUMBER}(?:–{NUMBER})? %", text(lines), re.M):
            gpu = next((one for one in report.gpus if one.label == label), None)
            if gpu is not None and whole:
                self.gpu_range("timeline", gpu.account, low, high or low)

    def step(self, screen: Explained) -> None:
        report = screen.report
        if report is None or report.steps is None:
            return
        step = step_of(screen, report.steps.pid)
        if found := re.search(r"median (\S+) of (\d+)(?:, mean (\S+?))?(?:,|$)", title(step, report)):
            assert int(found[2]) == report.steps.count, "as many steps as the chain page has"
            self.time("step: median", found[1], report.steps.median_ns)
            if found[3]:
                self.time("step: mean", found[3], report.steps.usual_ns)

    def rows(self, frame: Frame) -> None:
        """The cells of a process are the same in the table of the screen and in that of ``--once``."""
        lines = render_text(frame, width=None).splitlines()
        lines = lines[next((at for at, one in enumerate(lines) if re.match(r"\s*PID +NAME", one)), 0) :]
        context = process_table.context_of(frame, UNICODE)
        for row in frame.processes:
            cells = [column.cell(row, context, column.width)[0].strip() for column in COLUMNS if column.right]
            line = next(one for one in lines if re.match(rf"\s*{row.pid}  ", one))
            missing = [cell for cell in cells if cell not in ("", "-") and cell not in line]
            assert not missing, (missing, line)
            self.seen["row"] += 1


def report_line(finding: Finding) -> str:
    """The costs of a finding in the forms that texts have."""
    return " ".join(f"{value / unit:.{digits}f}{name}" for value in (finding.loss.middle,)
                    for name, unit in UNITS.items() for digits in (0, 1, 2))  # fmt: skip


def _key(finding: Finding) -> tuple[str, str, int]:
    return finding.cause, finding.kind, finding.pid


@pytest.mark.parametrize("file", EACH)
def test_every_place_says_the_same_of_each_look_between_explanations(file: Path) -> None:
    session, reader = SessionReader(file), Reader()
    marks = session.items_between(-1, len(session.marks) - 1)
    for frame, verdict in moments(session.header, marks, looks=True):
        reader.compare(frame, verdict)
    assert {"once: window", "chain: window", "why: lower", "row"} <= set(reader.seen)


@pytest.mark.parametrize("file", EACH)
def test_every_place_says_the_same_of_each_moment_of_a_recording(file: Path) -> None:
    session, reader = SessionReader(file), Reader()
    for frame, verdict in moments(session.header, session.items_between(-1, len(session.marks) - 1)):
        reader.compare(frame, verdict)
    assert {"once: window", "chain: window", "why: upper", "timeline: upper", "row"} <= set(reader.seen)
    if "fixed" not in file.stem and file.stem != "healthy":
        assert {"once: cost", "chain: share", "chain: saves", "why: share", "why: saves"} <= set(reader.seen)
    if file.stem in ("dataloader", "numpy-sync", "redundant-to-device"):
        assert {"chain: step", "step: median", "why: a step", "chain: saved of a step"} <= set(reader.seen)


STEP = 20 * MS
#: Process -> (its GPU, how long it waits in each step, where it is then: asleep or at work).
PROGRAMS: dict[str, dict[int, tuple[int, int, bool]]] = {
    "two on one GPU": {10: (0, 6 * MS, True), 20: (0, 3 * MS, False)},
    "one each on three": {10: (0, 15 * MS, True), 20: (1, 8 * MS, False), 30: (2, 2 * MS, True)},
    "one on two in turns": {10: (0, 5 * MS, False), 11: (1, 9 * MS, False)},
    "five on two": {
        pid: (pid // 10 % 2, 2 * MS + pid * MS // 20, pid % 20 == 0) for pid in range(10, 60, 10)
    },
}


def made(programs: dict[int, tuple[int, int, bool]], seconds: int = 5) -> list[Item]:
    """A session: each process launches a kernel in each step and waits for it, from its own moment on."""
    records, gpus = [], 1 + max(gpu for gpu, _wait, _sleeps in programs.values())
    for place, (pid, (gpu, wait, sleeps)) in enumerate(programs.items()):
        records.append(items.event(Kind.FORK, START + 1 + place, pid=pid, tid=pid))
        first = START + (place + 1) * MS
        records.append(items.call(first, 5_000, "cudaSetDevice", pid=pid, tid=pid, aux=gpu))
        for begin in range(first + MS, START + seconds * SECOND, STEP):
            records.append(items.call(begin + 10_000, 10_000, pid=pid, tid=pid))
            end = begin + 20_000 + wait
            records.append(items.call(end, wait, "cudaDeviceSynchronize", pid=pid, tid=pid))
            if sleeps:
                records.append(items.off(begin + STEP - 50_000, STEP - 100_000 - wait, 0, pid=pid, tid=pid))
    rows = [
        {
            "index": index,
            "name": "GPU",
            "uuid": f"u{index}",
            "processes": [[pid, 1 << 20] for pid, one in programs.items() if one[0] == index],
        }
        for index in range(gpus)
    ]
    found: list[Item] = [items.apis(), Sample(GPUS, START, {"driver": "1.2.3", "gpus": rows, "error": ""})]
    found += [items.process(pid, cuda_visible_devices=None) for pid in programs]
    return [*found, *ticked(sorted(records, key=lambda one: int(one["t_end"].max())))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_place_says_the_same_of_programs_on_several_gpus(name: str) -> None:
    programs, reader, last = PROGRAMS[name], Reader(), None
    for frame, verdict in moments(items.HEADER, made(programs)):
        reader.compare(frame, verdict)
        last = verdict
    assert last is not None
    assert {"once: window", "why: upper", "timeline: upper", "chain: window", "row"} <= set(reader.seen)
    steps = np.arange(0, 4 * SECOND, 10_000)  # the truth: no process waits for its kernel
    for gpu in last.report.gpus:
        mine = [(at, one) for at, one in enumerate(programs.values()) if f"GPU {one[0]}" == gpu.label]
        begins = [(at + 2) * MS for at, _one in mine]
        works = [
            ((steps - begin) % STEP <= 20_000 + one[1])
            for begin, (_at, one) in zip(begins, mine, strict=True)
        ]
        idle = 1 - np.any(works, axis=0).mean()
        assert gpu.account.proved_ns / gpu.span_ns == pytest.approx(idle, abs=0.02), gpu.label
