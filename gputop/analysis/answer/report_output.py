"""The report as JSON (docs/json.md) and as text."""

from __future__ import annotations

import re
import textwrap
from typing import Final

from gputop.analysis.answer.energy_output import energy_json, energy_text
from gputop.analysis.answer.exact_report import exact_json, exact_texts
from gputop.analysis.answer.kernel_report import graph_texts, graphs_json, kernel_texts, kernels_json
from gputop.analysis.answer.memory_report import leak_line, memory_json, shortage_lines
from gputop.analysis.answer.picture import rank_texts, ranks_json
from gputop.analysis.answer.report import (
    Diagnosis,
    Event,
    Finding,
    Growth,
    Link,
    LongSteps,
    Range,
    Report,
)
from gputop.analysis.answer.wording import (
    ADVICE,
    NO_FINDING,
    finding_block,
    idle_words,
    levels_used,
    remainder_text,
    steps_text,
    storm_text,
    what_if_text,
)
from gputop.documents.explain_schema import (
    DiagnosisJson,
    EventJson,
    ExplainDocument,
    FindingJson,
    GrowthJson,
    LinkJson,
    LongStepsJson,
)
from gputop.documents.shared_schema import RangeJson
from gputop.engine.calls.failed_calls import failure_json, failure_lines
from gputop.engine.calls.stack_table import line_json
from gputop.format import escape_text

SCHEMA: Final = "gputop.explain/1"


def report_to_json(report: Report) -> ExplainDocument:
    """One object; times in ns. Moments and events count from the start of the recording."""
    made: ExplainDocument = {
        "schema": SCHEMA,
        "start_ns": report.start_ns,
        "duration_ns": report.duration_ns,
        "verdict": report.verdict,
        "class": report.diagnosis.kind if report.diagnosis else None,
        "diagnosis": _diagnosis_json(report.diagnosis),
        "gpu_idle_ns": {**range_json(report.idle), "source": _source(report)},
        "span_ns": report.span_ns,
        "gpus": [
            {
                "label": gpu.label,
                "span_ns": gpu.span_ns,
                "idle_ns": {**range_json(gpu.idle), "source": gpu.account.source},
                "account_ns": {
                    "proved_idle": gpu.account.proved_ns,
                    "estimated_idle": gpu.account.estimated_ns,
                    "busy": gpu.account.busy_ns,
                    "unknown": gpu.account.unknown_ns,
                },
                "error_ns": gpu.account.error_ns,
                "sources_agree": gpu.account.agrees,
            }
            for gpu in report.gpus
        ],
        "steps": None
        if report.steps is None
        else {
            "count": report.steps.count,
            "median_ns": report.steps.median_ns,
            "usual_ns": report.steps.usual_ns,
            "long": None if report.steps.long is None else _long_json(report.steps.long),
            "growth": None if report.steps.growth is None else _growth_json(report.steps.growth),
            "pid": report.steps.pid,
            "tid": report.steps.tid,
        },
        "outside_ns": report.outside_ns,
        "events": [_event_json(event) for event in report.events],
        "findings": [_finding_json(finding) for finding in report.findings],
        "what_if": [
            {
                "cause": one.cause,
                "step_before_ns": one.before_ns,
                "step_after_ns": one.after_ns,
                "step_least_ns": one.least_ns,
            }
            for one in report.what_if
        ],
        "storms": [
            {
                "pid": storm.pid,
                "tid": storm.tid,
                "name": storm.name,
                "switches": storm.switches,
                "switches_per_second": storm.switches_per_second,
                "gpu_ns": storm.gpu_ns,
            }
            for storm in report.storms
        ],
        "small_ns": report.small_ns,
        "unexplained_ns": report.unexplained_ns,
        "unknown_ns": report.unknown_ns,
        "coverage": report.coverage,
        "lost": {"events": report.lost_events},
        "notes": list(report.notes),
    }
    if report.failures:
        made["failures"] = [failure_json(one) for one in report.failures]
    if report.memory is not None:
        made["memory"] = memory_json(report.memory)
    if report.kernels is not None:
        made["kernels"] = kernels_json(report.kernels)
    if report.exact is not None:
        made["exact"] = exact_json(report.exact)
    if report.graphs is not None:
        made["graphs"] = graphs_json(report.graphs)
    if report.ranks is not None:
        made["ranks"] = ranks_json(report.ranks)
    if report.energy is not None:
        made["energy"] = energy_json(report)
    return made


def _long_json(long: LongSteps) -> LongStepsJson:
    return {
        "total_ns": long.total_ns,
        "count": long.count,
        "ns": long.ns,
        "longest": [{"time_ns": at, "ns": ns} for at, ns in long.longest],
    }


def _growth_json(growth: Growth) -> GrowthJson:
    return {
        "first_ns": growth.first_ns,
        "last_ns": growth.last_ns,
        "part_ns": growth.part_ns,
        "part": growth.part,
        "line": line_json(growth.line),
        "text": growth.text(),
    }


def range_json(one: Range) -> RangeJson:
    """A duration between bounds."""
    return {"lower": one.lower, "upper": one.upper, "estimate": one.estimate}


def _source(report: Report) -> str | None:
    """Who estimates: one word where all GPUs have the same."""
    sources = {gpu.account.source for gpu in report.gpus if gpu.account.source is not None}
    return sources.pop() if len(sources) == 1 else ("several" if sources else None)


def _diagnosis_json(diagnosis: Diagnosis | None) -> DiagnosisJson | None:
    if diagnosis is None:
        return None
    return {
        "class": diagnosis.kind,
        "title": diagnosis.title,
        "level": str(diagnosis.level),
        "evidence": list(diagnosis.evidence),
        "advice": list(diagnosis.advice),
        "line": line_json(diagnosis.line),
    }


def _event_json(event: Event) -> EventJson:
    return {
        "time_ns": event.time_ns,
        "ns": event.ns,
        "cause": event.cause,
        "level": str(event.level),
        "title": event.title,
        "pid": event.pid,
        "chain": [_link_json(link) for link in event.chain],
        "line": line_json(event.line),
    }


def _finding_json(finding: Finding) -> FindingJson:
    return {
        "cause": finding.cause,
        "kind": finding.kind,
        "title": finding.title,
        "level": str(finding.level),
        "idle_level": str(finding.idle_level),
        "name_level": str(finding.name_level),
        "loss_ns": range_json(finding.loss),
        "pid": finding.pid,
        "tid": finding.tid,
        "api": finding.api,
        "chain": [_link_json(link) for link in finding.chain],
        "evidence": list(finding.evidence),
        "ruled_out": list(finding.ruled_out),
        "advice": list(finding.advice),
        "max_gain_ns": finding.max_gain_ns,
        "gain_because": finding.gain_because,
        "moments_ns": list(finding.moments_ns),
        "gaps": finding.gaps,
        "per_step_ns": finding.per_step_ns,
        "line": line_json(finding.line),
    }


def _link_json(link: Link) -> LinkJson:
    return {
        "layer": link.layer,
        "pid": link.pid,
        "tid": link.tid,
        "text": link.text,
        "ns": link.ns,
        "events": link.events,
        "role": link.role,
        "line": line_json(link.line),
    }


def report_to_text(report: Report, width: int = 100) -> str:
    """The report for people."""
    lines = [*_wrapped(report.verdict, width, "")]
    if report.diagnosis is not None and not report.findings:
        for text in report.diagnosis.evidence[1:]:
            lines += _wrapped(text, width, "  ")
        for text in report.diagnosis.advice:
            lines += _wrapped(f"> {text}", width, "  ")
    if report.steps is not None:
        lines += _wrapped(f"{steps_text(report.steps)}.", width, "")
        if (growth := report.steps.growth) is not None:
            lines += _wrapped(f"! {growth.text()}", width, "")
    if said := energy_text(report):
        lines += _wrapped(said, width, "")
    for number, finding in enumerate(report.findings, 1):
        lines += ["", *_finding_text(number, finding, report, width)]
    if said := what_if_text(report):
        lines += ["", *_wrapped(said, width, "")]
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
    if listed:
        for text in listed:
            lines += _wrapped(text.strip(), width, text[: len(text) - len(text.lstrip())])
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
            lines += _wrapped(text.strip(), width, "  " + text[: len(text) - len(text.lstrip())])
    return lines


def _memory(report: Report, width: int) -> list[str]:
    if report.memory is None:
        return []
    texts = [text for one in report.memory.shortages for text in shortage_lines(one)]
    texts += map(leak_line, report.memory.leaks)
    lines = ["", "Memory:"] if texts else []
    for text in texts:
        lines += _wrapped(text.strip(), width, "  " + text[: len(text) - len(text.lstrip())])
    return lines


def _rest(report: Report, width: int) -> list[str]:
    lines = [""]
    for text in (*map(storm_text, report.storms), remainder_text(report)):
        lines += _wrapped(text, width, "")
    for note in report.notes:
        lines += _wrapped(f"! {note}", width, "")
    return lines


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """Lines; names in the text may be those of any process, and are shown escaped."""
    return textwrap.wrap(
        escape_text(text), width, initial_indent=indent, subsequent_indent=indent + "  "
    ) or [indent]


# The report as Markdown, to paste into an issue: nothing in it is markup but what stands here.

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
    if said := what_if_text(report):
        lines.append(f"- {harmless(said)}")
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
