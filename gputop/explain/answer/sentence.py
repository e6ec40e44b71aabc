"""The first line of an explanation: the class, the cause, the line, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.explain.answer.report import Account, Diagnosis, Finding, Level, OneOff, Range, StepFacts
from gputop.explain.answer.wording import cost_text, idle_words
from gputop.format import format_ns

_NO_LOOP, _NAMED = "No loop", 2  # how many one-offs are named
_MOSTLY, _IDLE = 0.5, 0.1  # of the span: what did not repeat, to come first; idle time that wants a reason
_GROWN = 1.5  # times as long: a growth for the first line


def verdict(
    labels: Sequence[str],
    accounts: Sequence[Account],
    idle: Range,
    span_ns: int,
    findings: Sequence[Finding],
    diagnosis: Diagnosis | None,
    unexplained_ns: int,
    once: Sequence[OneOff] = (),
    steps: StepFacts | None = None,
) -> str:
    """One sentence or two: ``Input-bound: … [C12, proved]. GPU 0 idle for about 97 % of 2.7s (…)``.

    Where most of the time is no loop's, that comes first.

    Args:
        labels: The GPUs' names, one for each account.
        accounts: Their time.
        idle: The idle time of all.
        span_ns: All of their time.
        findings: The largest first.
        diagnosis: The class.
        unexplained_ns: Of so much idle time the chain is not known.
        once: What did not repeat, the largest first.
        steps: The steps that repeat.
    """
    said = _of_the_loop(labels, accounts, idle, span_ns, findings, diagnosis, unexplained_ns, once)
    grown = steps.growth if steps is not None else None
    if grown is not None and grown.last_ns >= _GROWN * grown.first_ns:
        said += (
            f" Its steps grow from {format_ns(grown.first_ns)} to {format_ns(grown.last_ns)}: {grown.part}."
        )
    if sum(one.ns for one in once) < _MOSTLY * span_ns or said.startswith(_NO_LOOP):
        return said
    return f"{_NO_LOOP} for most of the time: {_of_once(once)}. {said}"


def _of_once(once: Sequence[OneOff]) -> str:
    return " and ".join(one.text() for one in once[:_NAMED])


def _of_the_loop(
    labels: Sequence[str],
    accounts: Sequence[Account],
    idle: Range,
    span_ns: int,
    findings: Sequence[Finding],
    diagnosis: Diagnosis | None,
    unexplained_ns: int,
    once: Sequence[OneOff],
) -> str:
    which = labels[0] if len(labels) == 1 else f"{len(labels)} GPUs"
    idleness = idle_words(which, idle, span_ns, sum(one.outside_ns for one in accounts))
    lead = diagnosis.lead if diagnosis is not None else None
    if diagnosis is not None and diagnosis.kind is not None and lead is None:
        said = f"{_capital(diagnosis.title)} ({diagnosis.level}): {diagnosis.evidence[0]}. {idleness}"
        return f"{said}; the largest loss: {_cause(findings[0])}." if findings else f"{said}."
    if findings:
        first = findings[lead or 0]
        return f"{_of_class(diagnosis, _cause(first))}. {idleness}{_of_it(first)}."
    if diagnosis is not None and diagnosis.kind is None and diagnosis.level == Level.PROVED:
        return f"{idleness}; {diagnosis.evidence[0]}."
    if unexplained_ns > 0.02 * span_ns:
        return f"{idleness}; for {format_ns(unexplained_ns)} of it the chain is not known."
    if idle.estimate is None and idle.upper > 0.5 * span_ns:
        return f"{idleness}; the rest is unknown, because the program seldom waits for it."
    if once and idle.middle > _IDLE * span_ns:
        return f"{_NO_LOOP} loses this: {_of_once(once)}. {idleness}."
    return f"{idleness}: no recurring stall."


def _of_class(diagnosis: Diagnosis | None, cause: str) -> str:
    """The cause with its class before it, unless it says the class itself."""
    if diagnosis is None or not diagnosis.kind:
        return cause
    title, _, explained = diagnosis.title.partition(" (")
    said = cause.lower()
    if all(word in said.split() for word in title.lower().split()):
        return _capital(cause)
    if explained and explained.rstrip(")").lower() in said:
        return f"{_capital(title)}: {cause}"
    return f"{_capital(diagnosis.title)}: {cause}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cause(finding: Finding) -> str:
    where = f" at {finding.line.text()}" if finding.line is not None else ""
    return f"{finding.title}{where} [{finding.cause}, {finding.level}]"


def _of_it(finding: Finding) -> str:
    """What the cause costs; what is no idle time is said apart."""
    loss = finding.loss
    if finding.kind != "idle":
        return f"; this takes {format_ns(int(loss.middle))}"
    return f", {cost_text(loss)} of it because of this"
