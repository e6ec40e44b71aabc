"""Observing less and more while programs run: what each step gives up, and that it comes back."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes import api
from probes.ebpf import callcost
from probes.ebpf.degradation import MINIMAL, Reach
from probes.schema import Kind
from probes.source import MARK, PROBLEM, Item, Sample
from tests.ebpf.bpf_objects import held_by
from tests.observed_demo import observed
from tests.serving import calling, serving
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf
# gputop that decides every two seconds; how long it takes otherwise is held in tests/test_serve_budget.py
HASTY = """
import sys
from gputop.commands import cli
from gputop.serve import budget
budget.WINDOW_S, budget.SETTLE_S = 2.0, 2.4
sys.exit(cli.run(sys.argv[1:]))
"""


def _calls(items: Iterator[Item], marks: int) -> tuple[Counter[str], list[str]]:
    """(calls by function after the next mark, what is reported of the budget) of so many ticks."""
    seen: Counter[str] = Counter()
    told: list[str] = []
    left = marks + 2  # what is under way at the change is reported until the mark after it
    for item in items:
        if isinstance(item, Sample):
            told += [str(item.data["text"])] if item.data.get("about") == "budget" else []
            left -= item.kind == MARK
            if not left:
                break
        elif left <= marks:
            ops = item["op"][item["kind"] == int(Kind.CALL)]
            seen.update(api.BY_OP[op].name for op in ops.tolist())
    return seen, told


def _layers(seen: Counter[str]) -> set[str]:
    return {api.BY_OP[api.OP_OF[name]].layer for name in seen}


def test_each_step_gives_up_what_it_says_and_all_of_it_comes_back() -> None:
    with observed("healthy") as source:
        items = source.items()
        for _ in range(60):  # until it has started
            seen, _told = _calls(items, 2)
            if seen:
                break
        assert _layers(seen) == {"runtime", "driver"}
        source.reduce(Reach.NO_DRIVER, "why")
        seen, told = _calls(items, 4)
        assert _layers(seen) == {"runtime"}
        assert told == ["why"]
        source.reduce(Reach.FEW, "why not")
        seen, told = _calls(items, 4)
        assert set(seen) <= MINIMAL
        assert seen
        source.reduce(Reach.NOTHING, "nothing")
        seen, _ = _calls(items, 4)
        assert not seen
        source.reduce(Reach.ALL, "")
        seen, told = _calls(items, 6)
        assert _layers(seen) == {"runtime", "driver"}
        assert told == [""]
        source.close()
        assert [item for item in items if isinstance(item, Sample) and item.kind == PROBLEM] == []


def test_what_a_call_costs_is_measured_and_nothing_stays_attached() -> None:
    before = held_by(os.getpid())
    found = callcost.measured()
    if found is None:
        pytest.skip("no function of this C library begins with a push")
    assert 50 < found < 1_000_000
    assert held_by(os.getpid()) == before


@pytest.mark.long
def test_a_daemon_that_costs_too_much_says_what_it_gives_up_and_detaches_it(tmp_path: Path) -> None:
    with (
        serving(
            tmp_path, "--keep-dir", "", "--budget", "0.01%", program=(sys.executable, "-c", HASTY)
        ) as daemon,
        calling(tmp_path, 1_000_000, 0.002),
    ):
        links = len(held_by(daemon.process.pid).links)
        wait_until(lambda: daemon.status()["budget"]["step"] == Reach.NOTHING, "the last step")
        status = daemon.status()["budget"]
        assert "any call" in status["given_up"]
        wait_until(lambda: len(held_by(daemon.process.pid).links) < links, "links to be gone")
        frame = daemon.frame()
        assert any("does not observe any call" in problem for problem in frame["problems"])
