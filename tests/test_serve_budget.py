"""How much is observed for what it costs: the daemon's steps, on a made-up load in made-up time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from gputop.serve.budget import SETTLE_S, UP_S, Budget
from probes.ebpf.degradation import Reach

CALL_NS, CPUS, MOST = 2_000.0, 4, 0.01  # 40 ms a second of all CPUs
# what is still seen of the calls at each step
SEEN = {Reach.ALL: 1.0, Reach.NO_LINES: 1.0, Reach.NO_DRIVER: 0.5, Reach.FEW: 0.3, Reach.NOTHING: 0.0}


def _run(seconds: int, rate: Callable[[float], float], own: float = 0.001) -> list[tuple[int, Reach]]:
    """(second, step) of each change; ``rate``: calls a second that a program makes, by time."""
    budget = Budget(MOST, CALL_NS, CPUS)
    changes, calls, cpu = [], 0.0, 0.0
    for second in range(seconds):
        if budget.consume(second, cpu, int(calls)):
            changes.append((second, budget.reach))
        calls += rate(second) * SEEN[budget.reach]
        cpu += own
    return changes


def test_what_costs_less_than_the_budget_changes_nothing() -> None:
    assert _run(3600, lambda second: 15_000) == []


@pytest.mark.parametrize(
    ("rate", "step"),
    [(30_000, Reach.NO_DRIVER), (60_000, Reach.FEW), (500_000, Reach.NOTHING)],
)
def test_it_steps_down_one_by_one_until_the_cost_is_within_the_budget(rate: int, step: Reach) -> None:
    changes = _run(70, lambda second: rate)
    assert [reach for _, reach in changes] == list(Reach)[1 : step + 1]
    seconds = [second for second, _ in changes]
    assert seconds[0] <= 20
    assert all(later - earlier >= SETTLE_S for earlier, later in itertools.pairwise(seconds))


def test_when_the_load_has_gone_everything_is_observed_again() -> None:
    changes = _run(1000, lambda second: 500_000 if second < 100 else 0)
    assert changes[-1][1] == Reach.ALL
    assert [reach for _, reach in changes] == [*list(Reach)[1:], *list(Reach)[-2::-1]]
    (last,) = (second for second, reach in changes if reach == Reach.NOTHING)
    up = [second for second, reach in changes if second > last]
    assert up[0] >= last + UP_S
    assert all(later - earlier >= UP_S for earlier, later in itertools.pairwise(up))


def test_under_a_load_that_stays_it_tries_ever_more_seldom() -> None:
    changes = _run(20_000, lambda second: 500_000)
    ups = [
        second for (second, reach), (_, before) in zip(changes[1:], changes, strict=False) if reach < before
    ]
    pauses = [later - earlier for earlier, later in itertools.pairwise(ups)]
    assert pauses == sorted(pauses)
    assert len(ups) < 14


def test_a_load_at_the_edge_does_not_make_it_swing() -> None:
    """Between half the budget and all of it nothing changes, in either direction."""
    changes = _run(4000, lambda second: 30_000 if second < 40 else 24_000)
    assert [reach for _, reach in changes] == [Reach.NO_LINES, Reach.NO_DRIVER]


def test_the_daemons_own_time_counts_as_well() -> None:
    changes = _run(200, lambda second: 0, own=0.05)
    assert [reach for _, reach in changes] == list(Reach)[1:]


def test_what_is_given_up_is_reported_and_nothing_where_nothing_is() -> None:
    budget = Budget(MOST, CALL_NS, CPUS)
    assert budget.sentence() == ""
    budget.reach = Reach.NO_DRIVER
    assert "within 1 % of this machine's CPUs" in budget.sentence()
    assert "driver" in budget.sentence()
