"""Losses and what-ifs in words, as the text of a report and the screen both have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.format import format_ns

if TYPE_CHECKING:
    from gputop.explain.answer.report import Range, Report

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


def loss_ns(loss: Range) -> int:
    """What a loss is told to be in one figure: the estimate, else what is sure, else the middle."""
    return loss.estimate if loss.estimate is not None else loss.lower or int(loss.middle)


def is_about(loss: Range) -> bool:
    """Whether that figure is an estimate of which a part is not proved."""
    return loss.estimate is not None and loss.estimate > _NEAR * loss.lower


def what_if_text(report: Report) -> str:
    """``A step takes 78.0ms. Run again without C12: to 31.0ms, then without C04: to 12.0ms.``, or ""."""
    told = report.what_if
    if not told or (len(told) == 1 and len(report.findings) > 1):
        return ""
    parts = [f"{one.cause}: to {format_ns(one.after_ns)}" for one in told]
    return f"A step takes {format_ns(told[0].before_ns)}. Run again without {', then without '.join(parts)}."
