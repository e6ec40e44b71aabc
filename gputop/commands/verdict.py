"""The verdict beside one frame: what ``--once`` prints of it."""

from __future__ import annotations

import textwrap
from typing import Any

from gputop.explain.output import report_to_json
from gputop.explain.window import Verdict
from gputop.format import escape_text


def verdict_json(verdict: Verdict | None) -> dict[str, Any]:
    """The key that ``--once --json`` adds to a frame (docs/json.md)."""
    return {"verdict": report_to_json(verdict.report) if verdict is not None else None}


def verdict_text(verdict: Verdict | None, width: int | None, *, ascii_only: bool = False) -> str:
    """The sentence above the frame, and an empty line; "" where nothing can be known."""
    if verdict is None:
        return ""
    seconds = verdict.report.duration_ns / 1e9
    said = f"why, {seconds:.1f} s: {escape_text(verdict.report.verdict, ascii_only=ascii_only)}"
    return f"{textwrap.fill(said, width) if width else said}\n\n"
