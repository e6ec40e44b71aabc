"""Above its budget the screen is drawn less often, says so, and goes back when it can."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.analysis import incremental
from gputop.ui.model.header import Status, header_line
from gputop.ui.model.look import UNICODE
from gputop.ui.model.own_cost import FIRST_S, PERIOD_S, SLOWEST, OwnCost
from tests import fake_frames as fake
from tests.screen_support import feed_frame, running, text_of


class _Spent:
    """A clock, and the CPU time that a program has taken by it."""

    def __init__(self) -> None:
        self.now, self.cpu = 0.0, 2.0

    def after(self, cost: OwnCost, seconds: int, percents: dict[int, float]) -> list[int]:
        """How much slower it was each second, where it takes so many percent at each of them."""
        found = []
        for _ in range(seconds):
            self.now, self.cpu = self.now + 1.0, self.cpu + percents[cost.slower] / 100
            cost.consume(self.now, self.cpu)
            found.append(cost.slower)
        return found


def test_what_is_within_the_budget_is_drawn_as_often_as_usual() -> None:
    assert set(_Spent().after(OwnCost(), 600, {1: 5.9})) == {1}


def test_the_mean_covers_half_a_minute_and_names_it() -> None:
    cost, spent = OwnCost(), _Spent()
    spent.after(cost, 4, {1: 50.0})
    assert cost.mean is None, "too little time"
    spent.after(cost, 56, {1: 5.0})
    assert cost.mean == (pytest.approx(5.0), 30)
    spent.after(cost, 1, {1: 35.0})  # an explanation
    assert cost.mean == (pytest.approx(6.0), 30)
    line = header_line(fake.frame(), Status("live", own=cost.mean), 120, UNICODE)
    assert "gputop 6.0% (30s)" in "".join(text for text, _style in line)


def test_no_budget_is_no_limit() -> None:
    assert set(_Spent().after(OwnCost(0), 600, {1: 90.0})) == {1}


def test_above_the_budget_it_is_drawn_less_often_until_that_suffices() -> None:
    steps = _Spent().after(OwnCost(), 120, {1: 11.0, 2: 7.0, 4: 4.0})
    assert set(steps[: int(FIRST_S)]) == {1}, "what starting costs does not count"
    assert steps[int(FIRST_S + 3 * PERIOD_S) + 1 :] == [SLOWEST] * (120 - int(FIRST_S + 3 * PERIOD_S) - 1)


def test_it_goes_back_when_there_is_room_and_tries_in_vain_ever_more_seldom() -> None:
    cost, spent = OwnCost(), _Spent()
    steps = spent.after(cost, 60, {1: 11.0, 2: 5.0})
    assert steps[-1] == 2
    steps = spent.after(cost, 120, {1: 2.0, 2: 1.0})
    assert steps[-1] == 1
    swings = _Spent().after(OwnCost(), 3_600, {1: 11.0, 2: 1.0})
    ups = sum(before > then for before, then in itertools.pairwise(swings))
    assert 3 <= ups <= 12


@pytest.mark.parametrize(("rate", "slower", "drawn"), [(4, 2, 2), (4, 4, 1), (1, 4, 1), (0.5, 2, 0.5)])
def test_the_screen_is_drawn_once_a_second_at_least(rate: float, slower: int, drawn: float) -> None:
    cost = OwnCost()
    cost.slower = slower
    assert cost.drawn_hz(rate) == drawn


@pytest.mark.slow
async def test_the_screen_says_what_it_leaves_out_and_shows_the_newest_frame_in_the_end() -> None:
    now = [time.monotonic() + 1e6]  # a frame comes every 1,000 s
    async with running(fake.frame(), (120, 40)) as screen:
        app, _, pilot = screen
        app.view.clock = lambda: now[0]  # type: ignore[method-assign]
        app.view.own_cost.slower = SLOWEST
        first = replace(fake.frame(), number=90, events_per_second=61_500.0)
        await feed_frame(screen, first)
        assert "over 6%: drawn at 1Hz" in text_of(app)
        assert "61.5k events" in text_of(app)
        now[0] += 100.0
        await feed_frame(screen, replace(first, number=91, events_per_second=62_500.0))
        assert "61.5k events" in text_of(app), "before its time nothing is drawn"
        await pilot.press("down")
        now[0] += 2_000.0
        app.poll()
        await pilot.pause()
        assert "62.5k events" in text_of(app), "no frame is needed for what was not drawn"
        await pilot.press("exclamation_mark")
        await pilot.pause()
        assert "WHY is updated 4 times less often" in " ".join(text_of(app).split())


class _Clock:
    """Time of which each look takes 10 ms of CPU."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def thread_time(self) -> float:
        """Seconds of CPU."""
        return self.now


@pytest.mark.parametrize("slower", [1, 2, 4])
def test_looks_and_explanations_that_are_eased_come_less_often(
    slower: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    monkeypatch.setattr(incremental, "time", clock)

    def spend(*_: object) -> Any:
        clock.now += 0.04
        return made

    report = SimpleNamespace(span_ns=10 << 33, findings=(), diagnosis=None)
    made = SimpleNamespace(look=spend, verdict=SimpleNamespace(report=report))
    looks, pace = incremental.Looks(), incremental.ExplainSchedule()
    looks.slower = pace.slower = slower
    for due, take, usual_s in (
        (lambda: looks.due, lambda: looks.look(made, made), incremental.LONGEST_S),  # type: ignore[arg-type]
        (lambda: pace.due, lambda: pace.explain(spend), 0.04 / incremental.SHARE),
    ):
        began = clock.now
        take()
        clock.now = began + slower * usual_s * 0.99
        assert not due()
        clock.now = began + slower * usual_s * 1.01
        assert due()
