"""The verdict beside one frame: what ``--once`` prints of it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gputop.documents.frame import VerdictJson
from gputop.explain.answer.output import report_to_json
from gputop.explain.answer.wording import what_if_text
from gputop.format import escape_text
from gputop.ui.model.why import ended_text

if TYPE_CHECKING:
    from gputop.explain.window import Verdict


def verdict_json(verdict: Verdict | None) -> VerdictJson:
    """The key that ``--once --json`` adds to a frame (docs/json.md)."""
    return {"verdict": report_to_json(verdict.report) if verdict is not None else None}


def verdict_text(verdict: Verdict | None, width: int | None, now_ns: int, *, ascii_only: bool = False) -> str:
    """The sentences above the frame, and an empty line; "" where nothing can be known.

    What has no finding but an advice, a busy GPU, gets that; of several causes what is left without each. Of
    programs that have ended it says so, by the frame's moment.
    """
    if verdict is None:
        return ""
    report = verdict.report
    said = [f"why, {report.duration_ns / 1e9:.1f} s: {report.verdict}"]
    if verdict.ended is not None:
        said.append(f"{ended_text(verdict.ended, now_ns)}; no process makes CUDA calls now")
    if report.diagnosis is not None and not report.findings:
        said += [f"> {advice}" for advice in report.diagnosis.advice]
    said += [text for text in (what_if_text(report),) if text]
    shown = [escape_text(text, ascii_only=ascii_only) for text in said]
    return "\n".join(textwrap.fill(text, width) if width else text for text in shown) + "\n\n"
