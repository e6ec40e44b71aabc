"""The order of the findings from one explanation to the next: two change places when one is clearly larger.

Every pane reads the report of ``Steady.ordered``, live and in a replay: the first finding of the panel
is the first of the page, and its class is the class that is shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.format import NS_PER_S
from gputop.playback.feed import Explained

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Diagnosis, Finding, Range, Report

FAR_NS = 10 * NS_PER_S  # from one explanation to the next: beyond, nothing of the old order is kept
_LEAST = 0.01  # of the time: the precision in which shares are shown
_Key = tuple[str, int]


class Steady:
    """Keeps findings in their places while their ranges overlap."""

    def __init__(self) -> None:
        self._order: list[_Key] = []
        self._end_ns = 0

    def ordered(self, explained: Explained) -> Explained:
        """The explanation with its findings in a steady order, that of the class first."""
        report = explained.report
        if report is None:
            return explained
        if abs(explained.end_ns - self._end_ns) > FAR_NS:
            self._order = []
        self._end_ns = explained.end_ns
        natural = _natural(report)
        findings = self._settled(natural, max(report.span_ns, 1))
        self._order = [_key(one) for one in findings]
        if tuple(findings) == report.findings and _lead(report) in (None, 0):
            return explained
        return replace(explained, report=_arranged(report, natural, findings))

    def _settled(self, natural: list[Finding], span_ns: int) -> list[Finding]:
        """The findings in the order they had, but for those that are clearly larger than one before them."""
        places = {key: place for place, key in enumerate(self._order)}
        old = sorted((one for one in natural if _key(one) in places), key=lambda one: places[_key(one)])
        settled: list[Finding] = []
        for one in old:
            at = len(settled)
            while at and _clearly_larger(one, settled[at - 1], span_ns):
                at -= 1
            settled.insert(at, one)
        for place, one in enumerate(natural):
            if _key(one) not in places:
                before = {_key(other) for other in natural[:place]}
                at = max((at for at, other in enumerate(settled, 1) if _key(other) in before), default=0)
                settled.insert(at, one)
        return settled


def _key(finding: Finding) -> _Key:
    return finding.cause, finding.pid


def _lead(report: Report) -> int | None:
    return report.diagnosis.lead if report.diagnosis is not None else None


def _natural(report: Report) -> list[Finding]:
    """That of the class first, then the others as they are."""
    lead = _lead(report)
    if lead is None:
        lead = next((place for place, one in enumerate(report.findings) if one.kind == "idle"), 0)
    return [*report.findings[lead : lead + 1], *report.findings[:lead], *report.findings[lead + 1 :]]


def _ends(loss: Range) -> tuple[int, int]:
    return loss.lower, max(loss.upper, loss.estimate or 0)


def _clearly_larger(one: Finding, other: Finding, span_ns: int) -> bool:
    """True if a finding costs more than another one whatever is true within both ranges."""
    if one.kind != other.kind:
        return one.kind == "idle"
    return _ends(one.loss)[0] > _ends(other.loss)[1] + _LEAST * span_ns


def _arranged(report: Report, natural: list[Finding], findings: list[Finding]) -> Report:
    """The report with its findings in another order; the class and the first sentence follow."""
    diagnosis = report.diagnosis
    if diagnosis is None or diagnosis.lead is None:
        return replace(report, findings=tuple(findings))
    if _key(findings[0]) == _key(natural[0]):
        return replace(report, findings=tuple(findings), diagnosis=replace(diagnosis, lead=0))
    return _renamed(report, diagnosis, findings)


def _renamed(report: Report, diagnosis: Diagnosis, findings: list[Finding]) -> Report:
    """The report whose class is that of the finding that kept its place."""
    from gputop.analysis.answer.report import Level
    from gputop.analysis.answer.wording import (
        accounts_for,  # loaded long before two findings compete
        verdict,
    )
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
