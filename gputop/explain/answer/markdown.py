"""The report as Markdown, to paste into an issue: nothing in it is markup but what stands here.

Names of programs, files and functions are other people's data. GitHub turns more than Markdown's own signs
into links (mentions, numbers of issues, addresses), also behind a backslash, but nothing within a code span.
So each word that could be more than a word becomes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gputop.explain.answer.figures import loss_text, saves_text, what_if_text
from gputop.explain.answer.report import Finding, Range, Report
from gputop.format import escape_text, format_ns, format_percent, format_times

_LEVELS = {
    "proved": "follows from what was observed and from CUDA's documented rules",
    "strong": "one assumption holds as far as one can see",
    "hint": "fits, but something else could fit too",
}
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
        lines.append(f"- {harmless(gpu.label)}: {harmless(_idle(gpu.idle, gpu.span_ns))}")
    if report.steps is not None:
        steps = report.steps
        lines.append(f"- {steps.text()} (thread {steps.tid})")
        if steps.growth is not None:
            lines.append(f"- {harmless(steps.growth.text())}")
    if said := what_if_text(report):
        lines.append(f"- {harmless(said)}")
    for number, finding in enumerate(report.findings, 1):
        lines += ["", *_finding(number, finding, report)]
    if not report.findings:
        lines += ["", "No finding: nothing repeats that costs the GPU time."]
    if report.events:
        lines += ["", "### Long gaps that did not repeat", ""]
        lines += [f"- {harmless(event.text())}" for event in report.events]
    return "\n".join([*lines, "", *_sureness(report)]) + "\n"


def _idle(idle: Range, span_ns: int) -> str:
    estimate = "not known" if idle.estimate is None else f"about {_share(idle.estimate, span_ns)}"
    return (
        f"idle for {estimate} of {format_ns(span_ns)}; proved: {_share(idle.lower, span_ns)}, "
        f"at most {_share(idle.upper, span_ns)}"
    )


def _share(ns: int, span_ns: int) -> str:
    return f"{format_percent(100 * ns / span_ns if span_ns else None)} %"


def _finding(number: int, finding: Finding, report: Report) -> list[str]:
    kind = "GPU idle" if finding.kind == "idle" else "time lost"
    each = f", {format_ns(finding.per_step_ns)} a step" if finding.per_step_ns else ""
    told = finding.loss.lower if finding.loss.estimate is None else finding.loss.estimate
    share = f", {_share(told, report.span_ns)} of the time" if report.span_ns and told else ""
    lines = [
        f"### {number}. {harmless(finding.title)} ({harmless(finding.cause)}, {finding.level})",
        "",
        f"{kind}: {harmless(loss_text(finding.loss) + share + each)}. The fix {saves_text(finding, report)}.",
        "",
    ]
    for depth, link in enumerate(finding.chain):
        figures = f"{format_ns(link.ns)} ({format_times(link.events)})"
        lines.append(f"{'  ' * depth}- {harmless(link.text)}: {figures}")
    for title, texts in (
        ("Evidence", finding.evidence),
        ("Ruled out", finding.ruled_out),
        ("To change", finding.advice),
    ):
        lines += _list(title, texts)
    if finding.moments_ns:
        moments = ", ".join(f"{moment / 1e9:.3f}" for moment in finding.moments_ns)
        lines += ["", f"Worst at {moments} s."]
    return lines


def _list(title: str, texts: Iterable[str]) -> list[str]:
    rows = [f"- {harmless(text)}" for text in texts]
    return ["", f"{title}:", "", *rows] if rows else []


def _sureness(report: Report) -> list[str]:
    unexplained = format_ns(report.unexplained_ns) if report.unexplained_ns else "0"
    unknown = format_ns(report.unknown_ns) if report.unknown_ns else "0"
    levels = [str(finding.level) for finding in report.findings]
    levels += [str(report.diagnosis.level)] if report.diagnosis is not None else []
    lines = ["### How sure", ""]
    lines += [f"- {level}: {meaning}" for level, meaning in _LEVELS.items() if level in levels]
    lines += [
        f"- start-up, end and first use: {format_ns(report.outside_ns)}; small gaps: "
        f"{format_ns(report.small_ns)}; unexplained: {unexplained}; not counted, since records are missing: "
        f"{unknown}; lost records: {report.lost_events}",
    ]
    if not report.coverage:
        lines.append("- NVML contradicts the proofs: some work is not seen")
    return lines + [f"- {harmless(note)}" for note in report.notes]
