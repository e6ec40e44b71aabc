"""Verdict, findings with their chains, what a change wins, and what else is told."""

from __future__ import annotations

from gputop.explain.answer.figures import loss_text, what_if_text
from gputop.explain.answer.report import Event, Finding, Link, Report
from gputop.format import format_ns, format_percent, format_times
from gputop.report_page.markup import figure, items, sentence, text


def verdict(report: Report) -> str:
    """The first sentence, and each GPU's time as parts that add up."""
    bars = "".join(_account(report, row) for row in range(len(report.gpus)))
    steps = ""
    if report.steps is not None:
        usual = figure("steps.usual_ns", report.steps.usual_ns, format_ns(report.steps.usual_ns))
        count = figure("steps.count", report.steps.count, str(report.steps.count))
        steps = f"<p>{count} steps of {usual} each, by the calls of thread {report.steps.tid}.</p>"
    grounds = items(report.diagnosis.evidence, "evidence") if report.diagnosis else ""
    return f'<p class="verdict" data-key="verdict">{sentence(report.verdict)}</p>{grounds}{steps}{bars}'


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
    """All findings, the costliest first."""
    if not report.findings:
        return "<p>No recurring loss of GPU time.</p>"
    return "".join(_finding(row, one, report) for row, one in enumerate(report.findings))


def _finding(row: int, finding: Finding, report: Report) -> str:
    key = f"findings.{row}"
    loss = "".join(
        figure(f"{key}.loss_ns.{end}", ns, "")
        for end, ns in (
            ("lower", finding.loss.lower),
            ("upper", finding.loss.upper),
            ("estimate", finding.loss.estimate),
        )
    )
    share = 100 * finding.loss.middle / report.span_ns if report.span_ns else 0.0
    a_step = ""
    if finding.per_step_ns is not None:
        a_step = (
            f", {figure(f'{key}.per_step_ns', finding.per_step_ns, format_ns(finding.per_step_ns))} a step"
        )
    line = f'<p class="line">{text(finding.line.full_text())}</p>' if finding.line is not None else ""
    kind = "GPU idle" if finding.kind == "idle" else "inside calls"
    gain = figure(f"{key}.max_gain_ns", finding.max_gain_ns, format_ns(finding.max_gain_ns))
    moments = ", ".join(f"{moment / 1e9:.3f}" for moment in finding.moments_ns)
    return (
        f'<article><h3>{row + 1}. {sentence(finding.title)} <span class="tag {finding.level}">'
        f"{finding.cause}, {finding.level}</span></h3>{line}"
        f"<p>{kind}: <b>{loss_text(finding.loss)}</b>{loss}, {format_percent(share)} % of the time{a_step}; "
        f"the fix saves up to {gain}</p>{_chain(finding.chain)}{items(finding.evidence, 'evidence')}"
        + (f"<p>ruled out</p>{items(finding.ruled_out, 'ruled')}" if finding.ruled_out else "")
        + items(finding.advice, "advice")
        + (f'<p class="note">worst at {moments} s</p>' if moments else "")
        + "</article>"
    )


def _chain(chain: tuple[Link, ...]) -> str:
    rows = "".join(
        f'<li class="{link.layer}">{sentence(link.text)}: {format_ns(link.ns)} '
        f"<small>({format_times(link.events)})</small></li>"
        for link in chain
    )
    return f'<ol class="chain">{rows}</ol>' if rows else ""


def rest(report: Report) -> str:
    """What a change wins in turn, single events, and what is not counted or not known."""
    told = what_if_text(report)
    events = "".join(_event(event) for event in report.events)
    sums = ", ".join(
        f"{about} {figure(key, ns, format_ns(ns))}"
        for key, about, ns in (
            ("outside_ns", "outside the loop (start-up, end, first use)", report.outside_ns),
            ("small_ns", "small gaps", report.small_ns),
            ("unexplained_ns", "unexplained", report.unexplained_ns),
            ("unknown_ns", "excluded: records are lost", report.unknown_ns),
        )
    )
    return (
        (f"<p>{sentence(told)}</p>" if told else "")
        + (f"<h3>Once only</h3><ul>{events}</ul>" if events else "")
        + f"<p>{sums}; {figure('lost.events', report.lost_events, str(report.lost_events))} events lost</p>"
        + items(report.notes, "notes")
    )


def _event(event: Event) -> str:
    return f"<li>{sentence(event.text())}{_chain(event.chain)}</li>"
