"""Losses and what-ifs in words, as the text of a report and the screen both have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.format import format_ns, format_percent

if TYPE_CHECKING:
    from gputop.explain.answer.report import Finding, Range, Report, WhatIf

_NEAR = 1.05  # an upper bound below so many times the lower one tells nothing more


def loss_text(loss: Range) -> str:
    """``2.25s``, ``1.0s to 1.6s``, ``about 1.2s (1.0s proved, at most 1.6s)``."""
    lower, upper, estimate = loss.lower, loss.upper, loss.estimate
    if upper < _NEAR * lower:
        return format_ns(lower)
    sure = format_ns(lower) if lower else "0"
    if estimate is None:
        return f"{sure} to {format_ns(upper)}"
    return f"about {format_ns(estimate)} ({sure} proved, at most {format_ns(upper)})"


def idle_text(idle: Range, span_ns: int, dash: str = "–") -> str:
    """Percent, ``47–72``: what is proved, and what is estimated or, without an estimate, possible; ``48``."""
    span = max(span_ns, 1)
    upper = idle.upper if idle.estimate is None else max(idle.estimate, idle.lower)
    ends = [format_percent(100 * ns / span) for ns in (idle.lower, upper)]
    return dash.join(dict.fromkeys(ends))


def share_text(loss: Range, span_ns: int, dash: str = "–") -> str:
    """The part of the time that a loss takes, percent: the estimate, else the bounds: ``47–72``, ``48``."""
    if is_range(loss):
        return idle_text(loss, span_ns, dash)
    return format_percent(100 * loss_ns(loss) / max(span_ns, 1))


def cost_text(loss: Range, dash: str = "–", parts: int = 1) -> str:
    """``2.25s``, ``1.0–1.6s`` where nobody estimates; or of so many parts each."""
    if not is_range(loss):
        return format_ns((loss.lower if loss.estimate is None else loss.estimate) // parts)
    lower, upper = loss.lower // parts, loss.upper // parts
    low, high = format_ns(lower) if lower else "0", format_ns(upper)
    unit = high.lstrip("0123456789.")
    return f"{low.removesuffix(unit) if low.lstrip('0123456789.') == unit else low}{dash}{high}"


def loss_ns(loss: Range) -> int:
    """What a loss is told to be in one figure: the estimate, else what is sure, else the middle."""
    return loss.estimate if loss.estimate is not None else loss.lower or int(loss.middle)


def is_about(loss: Range) -> bool:
    """Whether that figure is an estimate of which a part is not proved."""
    return loss.estimate is not None and loss.estimate > _NEAR * loss.lower


def what_if_text(report: Report) -> str:
    """``A step takes 78.0ms; estimated with C12 fixed: 29.0ms to 31.0ms, with C04 as well: 12.0ms.``."""
    told = report.what_if
    if report.steps is not None and report.steps.long is not None:
        return ""
    if not told or (len(told) == 1 and len(report.findings) > 1):
        return ""
    first, *others = told
    more = "".join(f", with {one.cause} as well: {_left(one)}" for one in others)
    return (
        f"A step takes {format_ns(first.before_ns)}; estimated with {first.cause} fixed: "
        f"{_left(first)}{more}."
    )


def _left(one: WhatIf) -> str:
    """What is left of a step: a range, where its ends are not the same."""
    after = format_ns(one.after_ns)
    return after if one.after_ns <= _NEAR * one.least_ns else f"{format_ns(one.least_ns)} to {after}"


def saved_of_step(finding: Finding, report: Report) -> tuple[int, int] | None:
    """(what its change saves at most of a step, what a step takes), ns; None without steps of its process."""
    steps = report.steps
    if steps is None or steps.pid != finding.pid or not steps.count or steps.long is not None:
        return None
    return min(finding.max_gain_ns // steps.count, steps.usual_ns), steps.usual_ns


def saves_text(finding: Finding, report: Report) -> str:
    """``saves up to 2.41s: 70.9ms of each 78.0ms step``."""
    step = saved_of_step(finding, report)
    each = "" if step is None else f": {format_ns(step[0])} of each {format_ns(step[1])} step"
    because = f" ({finding.gain_because})" if finding.gain_because else ""
    return f"saves up to {format_ns(finding.max_gain_ns)}{each}{because}"


def is_range(loss: Range) -> bool:
    """Whether only its bounds are known, and they are apart."""
    return loss.estimate is None and loss.upper > _NEAR * loss.lower
