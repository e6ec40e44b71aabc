"""Verdict, findings with their chains, savings, and the rest of the report."""

from __future__ import annotations

from gputop.analysis.answer.report import Finding, Link, Report
from gputop.analysis.answer.wording import (
    ADVICE,
    EVIDENCE,
    NO_FINDING,
    RULED_OUT,
    energy_text,
    finding_block,
    link_figures,
    remainder,
    steps_text,
    storm_text,
    what_if_text,
)
from gputop.documents.field_columns import durations
from gputop.format import format_ns, format_percent
from gputop.report_page.markup import figure, items, sentence, text


def verdict(report: Report) -> str:
    """Return the first sentence, and each GPU's time as parts that add up."""
    bars = "".join(_account(report, row) for row in range(len(report.gpus)))
    steps = ""
    if report.steps is not None:
        exact = figure("steps.usual_ns", report.steps.usual_ns, "")
        exact += figure("steps.count", report.steps.count, "")
        steps = f"<p>{sentence(steps_text(report.steps))}.{exact}</p>"
        if report.steps.growth is not None:
            steps += f"<p>{sentence(report.steps.growth.text())}</p>"
    grounds = items(report.diagnosis.evidence, "evidence") if report.diagnosis else ""
    joules = energy_text(report)
    energy = f"<p>{sentence(joules)}</p>" if joules else ""
    first = f'<p class="verdict" data-key="verdict">{sentence(report.verdict)}</p>'
    return f"{first}{grounds}{steps}{energy}{bars}"


def _account(report: Report, row: int) -> str:
    gpu = report.gpus[row]
    parts = (
        ("busy", "busy", "at work", gpu.account.busy_ns),
        ("proved", "proved_idle", "idle, proved", gpu.account.proved_ns),
        ("assumed", "estimated_idle", "idle, estimated", gpu.account.estimated_ns),
        ("unknown", "unknown", "not known", gpu.account.unknown_ns),
    )
    at, rects, words = 0.0, [], []
    for kind, key, about, ns in parts:
        share = 100 * ns / gpu.span_ns if gpu.span_ns else 0.0
        rects.append(f'<rect class="{kind}" x="{at:.2f}%" width="{share:.2f}%" height="14"/>')
        at += share
        if ns:
            exact = figure(f"gpus.{row}.account_ns.{key}", ns, format_ns(ns))
            words.append(f"{about} {exact} ({format_percent(share)} %)")
    span = figure(f"gpus.{row}.span_ns", gpu.span_ns, format_ns(gpu.span_ns))
    return (
        f'<div class="account"><b>{text(gpu.label)}</b> of {span}: {", ".join(words)}'
        f'<svg class="bar" role="img" aria-label="{text(gpu.label)}">{"".join(rects)}</svg></div>'
    )


def findings(report: Report) -> str:
    if not report.findings:
        return f"<p>{NO_FINDING}</p>"
    return "".join(_finding(row, one, report) for row, one in enumerate(report.findings))


def _finding(row: int, finding: Finding, report: Report) -> str:
    block, key = finding_block(finding, report), f"findings.{row}"
    exact = "".join(figure(f"{key}.{name}", ns, "") for name, ns in durations(finding))
    line = f'<p class="line">{text(finding.line.full_text())}</p>' if finding.line is not None else ""
    return (
        f'<article><h3>{row + 1}. {sentence(block.title)} <span class="tag {finding.level}">'
        f"{block.tag}</span></h3>{line}"
        f"<p><b>{sentence(block.cost)}</b>{exact}; the fix {sentence(block.saves)}</p>"
        f"{_labelled('chain', _chain(finding.chain))}"
        + "".join(
            _labelled(heading, items(block.listed(heading), kind))
            for heading, kind in ((EVIDENCE, "evidence"), (RULED_OUT, "ruled"), (ADVICE, "advice"))
        )
        + (f'<p class="note">{block.moments}</p>' if block.moments else "")
        + "</article>"
    )


def _labelled(heading: str, content: str) -> str:
    return f"<h4>{heading}</h4>{content}" if content else ""


def _chain(chain: tuple[Link, ...]) -> str:
    rows = "".join(
        f'<li class="{link.layer}">{sentence(link.text)}: {link_figures(link)}</li>' for link in chain
    )
    return f'<ol class="chain">{rows}</ol>' if rows else ""


def rest(report: Report) -> str:
    """Return the savings of changes in turn, single events, and time that is not counted or not known."""
    left = what_if_text(report)
    html = f"<p>{sentence(left)}</p>" if left else ""
    events = "".join(f"<li>{sentence(one.text())}{_chain(one.chain)}</li>" for one in report.events)
    keys = {key for key, _words, _ns in remainder(report)}
    parts = [f"{words} {figure(key, ns, format_ns(ns))}" for key, words, ns in remainder(report)]
    hidden = "" if "unknown_ns" in keys else figure("unknown_ns", report.unknown_ns, "")
    lost = figure("lost.events", report.lost_events, str(report.lost_events))
    return (
        html
        + (f"<h3>Once only</h3><ul>{events}</ul>" if events else "")
        + f"<p>{'; '.join(parts)}; {lost} events lost{hidden}</p>"
        + items((*map(storm_text, report.storms), *report.notes), "notes")
    )
