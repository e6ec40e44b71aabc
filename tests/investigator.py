"""Follows the prompt ``investigate`` by rule, without a model: asks tools, checks, answers in sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Ask = Callable[[str, dict[str, Any]], Awaitable[str]]
# how much of a finding's gaps its thread was off the CPU, by how: what could refute who is blamed
_OFF_CPU = (
    "with g as (select start_ns b, end_ns e from gaps where cause = '{cause}'),"
    " s as (select start_ns b, start_ns + duration_ns e, runnable_ns r from slices where tid = {tid})"
    " select (select sum(e - b) from g) / 1e6,"
    " coalesce(sum(greatest(0, least(s.e - s.r, g.e) - greatest(s.b, g.b))), 0) / 1e6,"
    " coalesce(sum(greatest(0, least(s.e, g.e) - greatest(s.e - s.r, g.b))), 0) / 1e6"
    " from g, s where s.b < g.e and s.e > g.b"
)
_COPIES = "select count(*) from calls where tid = {tid} and direction = {direction} and not nested"


@dataclass
class Investigation:
    """What was asked, and the answer.

    Attributes:
        cause: Of the finding that stood the check; None: nothing repeats.
        answer: In sentences.
        replies: Everything that tools said.
        refuted: Causes whose check contradicted them.
    """

    cause: str | None = None
    answer: str = ""
    replies: list[str] = field(default_factory=list)
    refuted: list[str] = field(default_factory=list)


async def investigate(ask: Ask, session: str) -> Investigation:
    """Losses and coverage, chains, one check of each finding until one stands, the answer."""
    made = Investigation()

    async def told(tool: str, **arguments: Any) -> Any:
        made.replies.append(await ask(tool, {"session": session, **arguments}))
        return json.loads(made.replies[-1])

    check = await told("get_check")
    said = [*check["failures"]]
    if not check["calls_observed"]:
        made.answer = " ".join(said)
        return made
    chains = await told("get_causal_chains")
    steps = chains["steps"]
    for finding in chains["findings"]:
        stands, shown = await _stands(told, finding, steps)
        if not stands:
            made.refuted.append(finding["cause"])
            continue
        made.cause = finding["cause"]
        loss, at = finding["loss_ms"], finding["line"]
        said.append(
            f"{finding['cause']}, {finding['level']}: {loss['proved']} to {loss['at_most']} ms of idle time"
            + (f" at {at['file']}:{at['line']}" if at else "")
            + f". {shown} The fix saves at most {finding['max_gain_ms']} ms: {'; '.join(finding['advice'])}."
        )
        break
    else:
        said.append("nothing repeats that costs the GPU time")
    said.append(f"Unexplained: {chains['unexplained_ms']} ms, unknown: {chains['unknown_ms']} ms.")
    made.answer = " ".join(said)
    return made


async def _stands(told: Any, finding: dict[str, Any], steps: dict[str, Any] | None) -> tuple[bool, str]:
    """Whether a finding stands a check by a tool that counts on its own, and what that showed."""
    cause, tid = finding["cause"], finding["tid"]
    if cause in ("C02", "C05"):
        each = steps["count"] if steps else 1
        direction, least = (2, each) if cause == "C02" else (1, 8 * each)
        count = (await told("run_sql", query=_COPIES.format(tid=tid, direction=direction)))["rows"][0][0]
        return count >= least, f"Its thread made {count} such copies."
    reply = await told("run_sql", query=_OFF_CPU.format(cause=cause, tid=tid))
    whole, blocked, queued = reply["rows"][0]
    shown = f"In {whole} ms of its gaps its thread was blocked for {blocked} ms and queued for {queued} ms."
    if cause in ("C12", "C03"):
        return blocked + queued < whole / 2, shown
    if cause in ("C13", "C14"):
        return queued > whole / 2, shown
    if cause in ("C08", "C09"):
        return blocked > whole / 2, shown
    stacks = await told("get_stacks", pid=finding["pid"])
    return stacks["total"] > 0, f"Its process has {stacks['total']} stacks."


def numbers(text: str) -> set[str]:
    """The figures in a text, without those within words and names."""
    return set(re.findall(r"(?<![A-Za-z_0-9.])\d+(?:\.\d+)?(?![A-Za-z_0-9])", text))
