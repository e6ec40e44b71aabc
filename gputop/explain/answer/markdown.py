"""The report as Markdown, to paste into an issue: nothing in it is markup but what stands here.

Names of programs, files and functions are other people's data. GitHub turns more than Markdown's own signs
into links (mentions, numbers of issues, addresses), also behind a backslash, but nothing within a code span.
So each word that could be more than a word becomes one.
"""

from __future__ import annotations

import re

from gputop.explain.answer.report import Finding, Report
from gputop.explain.answer.wording import (
    NO_FINDING,
    finding_block,
    idle_words,
    levels_used,
    overlap_text,
    remainder_text,
    steps_text,
    storm_text,
    what_if_text,
)
from gputop.format import escape_text

# a word of our own sentences: signs before it, the word, signs behind it; a code span may hold blanks
_WORD = re.compile(r"[(\[]*`[^`\n]+`[)\],.;:]*(?!\S)|\S+")
_PARTS = re.compile(r"(?P<lead>[(\[]*)(?P<core>.*?)(?P<trail>[)\],.;:]*)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9%',./=+()-]*")
_TURNED = re.compile(r"www\.|^GH-\d|^[0-9a-f]{7,}$|^[-+=]+$|^\d+[.)]?$|^---|[.(][A-Za-z_]", re.IGNORECASE)


def harmless(text: str) -> str:
    """A sentence with names in it as Markdown that shows just that."""
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
    """A code span; its fence is longer than any in it."""
    if not text:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    room = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{text}{room}{fence}"


def report_to_markdown(report: Report) -> str:
    """Verdict, idle time, findings with chains, evidence, fix, and how sure each of it is."""
    lines = [f"**{harmless(report.verdict)}**", ""]
    diagnosis = report.diagnosis
    if diagnosis is not None:
        lines += [f"- class: {harmless(diagnosis.title)} ({diagnosis.level})"]
        lines += [f"  - {harmless(text)}" for text in diagnosis.evidence]
        if not report.findings:
            lines += [f"  - to change: {harmless(text)}" for text in diagnosis.advice]
    for gpu in report.gpus:
        said = idle_words(gpu.label, gpu.idle, gpu.span_ns, gpu.account.outside_ns)
        lines.append(f"- {harmless(said)}")
    if report.steps is not None:
        lines.append(f"- {harmless(steps_text(report.steps))}")
        if report.steps.growth is not None:
            lines.append(f"- {harmless(report.steps.growth.text())}")
    lines += [f"- {harmless(said)}" for said in (what_if_text(report), overlap_text(report)) if said]
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
