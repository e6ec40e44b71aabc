"""A steady order of the findings: two change places only when one is clearly larger.

All panes read the report of ``Steady.ordered``, so that the first finding and its class are the same
everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.format import NS_PER_S
from gputop.playback.feed import Explained

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Diagnosis, Finding, Range, Report

FAR_NS = 10 * NS_PER_S  # from one explanation to the next: beyond, the old order is dropped
_LEAST = 0.01  # of the time: the precision of shown shares
_Key = tuple[str, int]


class Steady:
    """Keeps findings in their places while their ranges overlap."""

    def __init__(self) -> None:
        self._order: list[_Key] = []
        self._end_ns = 0

    def ordered(self, explained: Explained) -> Explained:
        """Return the explanation with its findings in a steady order, that of the class first."""
        report = explained.report
        if report is None:
            return explained
        if abs(explained.end_ns - self._end_ns) > FAR_NS:
            self._order = []
        self._end_ns = explained.end_ns
        natural = _natural(report)
        findings = self._settled(natural, max(report.span_ns, 1))
        self._order = [finding_key(one) for one in findings]
        if tuple(findings) == report.findings and _lead(report) in (None, 0):
            return explained
        return replace(explained, report=_arranged(report, natural, findings))

    def _settled(self, natural: list[Finding], span_ns: int) -> list[Finding]:
        """Return the findings in their former order; clearly larger ones move up."""
        places = {key: place for place, key in enumerate(self._order)}
        old = sorted(
            (one for one in natural if finding_key(one) in places), key=lambda one: places[finding_key(one)]
        )
        settled: list[Finding] = []
        for one in old:
            at = len(settled)
            while at and _clearly_larger(one, settled[at - 1], span_ns):
                at -= 1
            settled.insert(at, one)
        for place, one in enumerate(natural):
            if finding_key(one) not in places:
                before = {finding_key(other) for other in natural[:place]}
                at = max(
                    (at for at, other in enumerate(settled, 1) if finding_key(other) in before), default=0
                )
                settled.insert(at, one)
        return settled


def finding_key(finding: Finding) -> _Key:
    """Return what identifies a finding from one explanation to the next."""
    return finding.cause, finding.pid


def _lead(report: Report) -> int | None:
    return report.diagnosis.lead if report.diagnosis is not None else None


def _natural(report: Report) -> list[Finding]:
    """Return the findings, that of the class first."""
    lead = _lead(report)
    if lead is None:
        lead = next((place for place, one in enumerate(report.findings) if one.kind == "idle"), 0)
    return [*report.findings[lead : lead + 1], *report.findings[:lead], *report.findings[lead + 1 :]]


def _ends(loss: Range) -> tuple[int, int]:
    return loss.lower, max(loss.upper, loss.estimate or 0)


def _clearly_larger(one: Finding, other: Finding, span_ns: int) -> bool:
    """True if a finding costs more than another one anywhere within both ranges."""
    if one.kind != other.kind:
        return one.kind == "idle"
    return _ends(one.loss)[0] > _ends(other.loss)[1] + _LEAST * span_ns


def _arranged(report: Report, natural: list[Finding], findings: list[Finding]) -> Report:
    """Return the report with its findings in another order; class and verdict follow."""
    diagnosis = report.diagnosis
    if diagnosis is None or diagnosis.lead is None:
        return replace(report, findings=tuple(findings))
    if finding_key(findings[0]) == finding_key(natural[0]):
        return replace(report, findings=tuple(findings), diagnosis=replace(diagnosis, lead=0))
    return _renamed(report, diagnosis, findings)


def _renamed(report: Report, diagnosis: Diagnosis, findings: list[Finding]) -> Report:
    """Return the report with the class of its new first finding."""
    # late, for the start of the screen
    from gputop.analysis.answer.report import Level
    from gputop.analysis.answer.wording import accounts_for, verdict
    from gputop.analysis.findings.diagnosis import TITLES, class_of

    first = findings[0]
    kind = class_of(first)
    if kind is None:
        return replace(report, findings=tuple(findings), diagnosis=replace(diagnosis, lead=None))
    level = Level.HINT if diagnosis.level == Level.HINT else first.level
    share = accounts_for(first.loss, report.span_ns)
    if kind != diagnosis.kind:
        diagnosis = replace(diagnosis, kind=kind, title=TITLES[kind], evidence=(share,), advice=(), line=None)
    diagnosis = replace(diagnosis, level=level, lead=0)
    sentence = verdict(
        [gpu.label for gpu in report.gpus],
        [gpu.account for gpu in report.gpus],
        report.idle,
        report.span_ns,
        findings,
        diagnosis,
        report.unexplained_ns,
        steps=report.steps,
    )
    return replace(report, findings=tuple(findings), diagnosis=diagnosis, verdict=sentence)
