"""The report as text and as Markdown."""

from __future__ import annotations

import re
import textwrap

from gputop.analysis.answer.kernel_report import exact_texts, graph_texts, kernel_texts
from gputop.analysis.answer.memory_report import leak_line, shortage_lines
from gputop.analysis.answer.picture import rank_texts
from gputop.analysis.answer.report import Finding, Report
from gputop.analysis.answer.wording import (
    ADVICE,
    NO_FINDING,
    energy_text,
    finding_block,
    idle_words,
    levels_used,
    remainder_text,
    steps_text,
    storm_text,
    what_if_text,
)
from gputop.engine.calls.failed_calls import failure_lines
from gputop.format import escape_text


def report_to_text(report: Report, width: int = 100) -> str:
    """Return the report as text."""
    lines = _wrapped(report.verdict, width, "")
    if report.diagnosis is not None and not report.findings:
        for text in report.diagnosis.evidence[1:]:
            lines += _wrapped(text, width, "  ")
        for text in report.diagnosis.advice:
            lines += _wrapped(f"> {text}", width, "  ")
    if report.steps is not None:
        lines += _wrapped(f"{steps_text(report.steps)}.", width, "")
        if (growth := report.steps.growth) is not None:
            lines += _wrapped(f"! {growth.text()}", width, "")
    if sentence := energy_text(report):
        lines += _wrapped(sentence, width, "")
    for number, finding in enumerate(report.findings, 1):
        lines += ["", *_finding_text(number, finding, report, width)]
    if sentence := what_if_text(report):
        lines += ["", *_wrapped(sentence, width, "")]
    if report.events:
        lines += ["", "Long gaps that did not repeat (not counted as findings):"]
        for event in report.events:
            lines += _wrapped(event.text(), width, "  ")
    lines += _failures(report, width)
    lines += _memory(report, width)
    listed = ["", *rank_texts(report.ranks)] if report.ranks is not None else []
    if report.kernels is not None:
        listed += ["", *kernel_texts(report.kernels)]
    if report.exact is not None:
        listed += ["", *exact_texts(report.exact)]
    if report.graphs is not None:
        listed += ["", *graph_texts(report.graphs)]
    for text in listed:
        lines += _indented(text, width)
    lines += _rest(report, width)
    return "\n".join(lines) + "\n"


def _finding_text(number: int, finding: Finding, report: Report, width: int) -> list[str]:
    block = finding_block(finding, report)
    lines = _wrapped(f"{number}. {block.title} [{block.tag}]", width, "")
    lines += _wrapped(block.cost, width, "   ")
    for depth, (_layer, text, figures) in enumerate(block.links):
        lines += _wrapped(f"{'  ' * depth}{text}: {figures}", width, "     ")
    for heading, texts in block.lists:
        if heading != ADVICE:
            lines += _wrapped(f"{heading}: {'; '.join(texts)}", width, "   ")
    for text in finding.advice:
        lines += _wrapped(f"> {text}", width, "   ")
    lines += _wrapped(block.saves, width, "   ")
    if block.moments:
        lines.append(f"   {block.moments} (gputop replay --at)")
    return lines


def _failures(report: Report, width: int) -> list[str]:
    lines = ["", "CUDA calls that failed:"] if report.failures else []
    for failure in report.failures:
        first, *more = failure_lines([failure])
        lines += _wrapped(f"{first}, process {failure.pid}", width, "  ")
        for text in more:
            lines += _indented(text, width, "  ")
    return lines


def _memory(report: Report, width: int) -> list[str]:
    if report.memory is None:
        return []
    texts = [text for one in report.memory.shortages for text in shortage_lines(one)]
    texts += map(leak_line, report.memory.leaks)
    lines = ["", "Memory:"] if texts else []
    for text in texts:
        lines += _indented(text, width, "  ")
    return lines


def _rest(report: Report, width: int) -> list[str]:
    lines = [""]
    for text in (*map(storm_text, report.storms), remainder_text(report)):
        lines += _wrapped(text, width, "")
    for note in report.notes:
        lines += _wrapped(f"! {note}", width, "")
    return lines


def _indented(text: str, width: int, more: str = "") -> list[str]:
    """Return the lines of a text with an indent of its own."""
    return _wrapped(text.strip(), width, more + text[: len(text) - len(text.lstrip())])


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """Return lines; names in the text may be those of any process, and are escaped."""
    return textwrap.wrap(
        escape_text(text), width, initial_indent=indent, subsequent_indent=indent + "  "
    ) or [indent]


# The report as Markdown, to paste into an issue; nothing of its data is markup.

# a word of gputop's sentences: signs before it, the word, signs behind it; a code span may hold blanks
_WORD = re.compile(r"[(\[]*`[^`\n]+`[)\],.;:]*(?!\S)|\S+")
_PARTS = re.compile(r"(?P<lead>[(\[]*)(?P<core>.*?)(?P<trail>[)\],.;:]*)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9%',./=+()-]*")
_TURNED = re.compile(r"www\.|^GH-\d|^[0-9a-f]{7,}$|^[-+=]+$|^\d+[.)]?$|^---|[.(][A-Za-z_]", re.IGNORECASE)


def harmless(text: str) -> str:
    """Return a sentence with names in it as Markdown that shows just that."""
    return " ".join(_word(word) for word in _WORD.findall(escape_text(text)))


def _word(word: str) -> str:
    parts = _PARTS.fullmatch(word)
    assert parts is not None  # it matches whatever there is
    lead, core, trail = parts["lead"], parts["core"], parts["trail"]
    if trail.startswith(")") and core.count("(") > core.count(")"):  # f(1)
        core, trail = core + ")", trail[1:]
    figure = core.isdigit() and (lead or trail[:1] not in (".", ")"))  # "1." would begin a list
    code = len(core) > 2 and core[0] == core[-1] == "`" and "`" not in core[1:-1]
    plain = _PLAIN.fullmatch(core) and not _TURNED.search(core)
    shown = core if figure or code or plain else _code(core)
    return re.sub(r"([\[\]])", r"\\\1", lead) + shown + re.sub(r"([\[\]])", r"\\\1", trail)


def _code(text: str) -> str:
    """Return a code span; its fence is longer than any in it."""
    if not text:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    room = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{text}{room}{fence}"


def report_to_markdown(report: Report) -> str:
    """Return verdict, idle time, findings with chains, evidence, fix and levels as Markdown."""
    lines = [f"**{harmless(report.verdict)}**", ""]
    diagnosis = report.diagnosis
    if diagnosis is not None:
        lines += [f"- class: {harmless(diagnosis.title)} ({diagnosis.level})"]
        lines += [f"  - {harmless(text)}" for text in diagnosis.evidence]
        if not report.findings:
            lines += [f"  - to change: {harmless(text)}" for text in diagnosis.advice]
    for gpu in report.gpus:
        sentence = idle_words([gpu.label], gpu.idle, gpu.span_ns, gpu.account.outside_ns)
        lines.append(f"- {harmless(sentence)}")
    if report.steps is not None:
        lines.append(f"- {harmless(steps_text(report.steps))}")
        if report.steps.growth is not None:
            lines.append(f"- {harmless(report.steps.growth.text())}")
    if sentence := what_if_text(report):
        lines.append(f"- {harmless(sentence)}")
    for number, finding in enumerate(report.findings, 1):
        lines += ["", *_finding(number, finding, report)]
    if not report.findings:
        lines += ["", NO_FINDING]
    if report.events:
        lines += ["", "### Long gaps that did not repeat", ""]
        lines += [f"- {harmless(event.text())}" for event in report.events]
    return "\n".join([*lines, "", *_sureness(report)]) + "\n"


def _finding(number: int, finding: Finding, report: Report) -> list[str]:
    block = finding_block(finding, report)
    lines = [
        f"### {number}. {harmless(block.title)} ({block.tag})",
        "",
        f"{harmless(block.cost)}. The fix {block.saves}.",
        "",
    ]
    for depth, (_layer, text, figures) in enumerate(block.links):
        lines.append(f"{'  ' * depth}- {harmless(text)}: {figures}")
    for heading, texts in block.lists:
        lines += ["", f"{heading.capitalize()}:", "", *(f"- {harmless(text)}" for text in texts)]
    return [*lines, "", f"{block.moments.capitalize()}."] if block.moments else lines


def _sureness(report: Report) -> list[str]:
    lines = ["### How sure", ""]
    lines += [f"- {level}: {meaning}" for level, meaning in levels_used(report)]
    lines += [f"- {remainder_text(report)}; lost records: {report.lost_events}"]
    if not report.coverage:
        lines.append("- NVML contradicts the proofs: some work is not seen")
    return lines + [f"- {harmless(text)}" for text in (*map(storm_text, report.storms), *report.notes)]
