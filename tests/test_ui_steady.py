"""Causes and the fix change places only when one is larger whatever is true within the bounds."""

from __future__ import annotations

from dataclasses import replace

from gputop.analysis.answer.report import Diagnosis, DiagnosisKind, Finding, Level, Range
from gputop.analysis.findings.diagnosis import TITLES, class_of
from gputop.playback.feed import Explained
from gputop.ui.model.answer.steady import FAR_NS, Steady
from gputop.ui.model.answer.why import Why, why_of
from gputop.ui.model.view import View
from tests import fake_frames as fake
from tests import fake_reports as why

MS, S = why.MS, why.S


def cost(cause: str, low_ms: int, high_ms: int) -> Finding:
    """A cause that took between so many ms and so many of ten seconds."""
    loss = Range(low_ms * MS, high_ms * MS, (low_ms + high_ms) // 2 * MS)
    return why.finding(cause, loss=loss, title=f"title of {cause}", advice=(f"advice of {cause}",))


def told(at_s: float, *findings: Finding) -> Explained:
    """An explanation with its findings by their estimates; the class is that of the largest."""
    ordered = tuple(sorted(findings, key=lambda one: -one.loss.middle))
    kind = class_of(ordered[0])
    assert kind is not None
    diagnosis = Diagnosis(kind, TITLES[kind], Level.PROVED, ("it is",), (), 0)
    report = replace(why.report(), findings=ordered, diagnosis=diagnosis)
    return Explained(report, int(at_s * S), int(at_s * S) - 10 * S)


def panel(view: View, explained: Explained) -> Why:
    """What the panel says after an explanation has come."""
    view.explain(explained)
    return why_of(view.explained, replace(fake.frame(), time_ns=explained.end_ns))


def order(shown: Why) -> list[str]:
    """The causes and the fix."""
    assert shown.fix is not None
    return [*(cause.number for cause in shown.causes), shown.fix.text]


def test_overlapping_causes_keep_their_places_and_the_fix_with_them() -> None:
    view = View()
    assert order(panel(view, told(100, cost("C05", 1900, 2700), cost("C12", 1800, 2500)))) == [
        "C05", "C12", "advice of C05",
    ]  # fmt: skip
    kind = panel(view, told(101, cost("C05", 1700, 2500), cost("C12", 1900, 2600)))
    assert order(kind) == ["C05", "C12", "advice of C05"]
    assert kind.kind == TITLES[DiagnosisKind(str(class_of(cost("C05", 1, 2))))].partition(" (")[0]
    shown = view.explained.report
    assert shown is not None
    assert shown.diagnosis is not None
    assert [one.cause for one in shown.findings] == ["C05", "C12"], "the page has them in the same order"
    assert "title of C05" in shown.verdict
    assert "title of C12" not in shown.verdict
    assert view.chain.selected is not None
    assert view.chain.selected.cause == "C05"
    clear = panel(view, told(102, cost("C05", 1000, 1500), cost("C12", 2700, 3000)))
    assert order(clear) == ["C12", "C05", "advice of C12"]


def test_a_proved_difference_below_what_is_shown_moves_nothing() -> None:
    steady = Steady()
    steady.ordered(told(100, cost("C05", 2000, 2000), cost("C12", 1999, 1999)))
    kept = steady.ordered(told(101, cost("C05", 2000, 2000), cost("C12", 2050, 2050)))
    assert kept.report is not None
    assert [one.cause for one in kept.report.findings] == ["C05", "C12"]
    swapped = steady.ordered(told(102, cost("C05", 2000, 2000), cost("C12", 2200, 2200)))
    assert swapped.report is not None
    assert [one.cause for one in swapped.report.findings] == ["C12", "C05"]


def test_no_pair_ever_swaps_within_its_bounds() -> None:
    for seed in range(20):
        from random import Random

        chance, steady, before = Random(seed), Steady(), []
        middles = {cause: chance.randrange(1000, 2000) for cause in ("C01", "C02", "C05", "C12")}
        for tick in range(60):
            made = []
            for cause in middles:
                middles[cause] = max(middles[cause] + chance.randrange(-150, 150), 500)
                if chance.random() < 0.95:
                    made.append(cost(cause, middles[cause] - 200, middles[cause] + 200))
            report = steady.ordered(told(100 + tick, *made)).report
            assert report is not None
            assert report.diagnosis is not None
            assert report.diagnosis.lead == 0
            assert {one.cause for one in report.findings} == {one.cause for one in made}
            assert report.diagnosis.kind == class_of(report.findings[0])
            after, loss = [one.cause for one in report.findings], {one.cause: one.loss for one in made}
            for place, cause in enumerate(after):
                for below in after[place + 1 :]:
                    if cause in before and below in before and before.index(below) < before.index(cause):
                        overtaken = [
                            below,
                            *(one for one in before[before.index(below) : before.index(cause)]),
                        ]
                        least = min(loss[one].upper for one in overtaken if one in loss)
                        assert loss[cause].lower > least, (before, after)
            before = after


def test_after_a_jump_nothing_of_the_old_order_is_kept() -> None:
    steady = Steady()
    steady.ordered(told(100, cost("C05", 1900, 2700), cost("C12", 1800, 2500)))
    later = told(101 + FAR_NS / S, cost("C05", 1700, 2500), cost("C12", 1900, 2600))
    assert steady.ordered(later).report is later.report
