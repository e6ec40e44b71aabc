"""The fault suite in its short form: one seed. ``make fault-suite`` runs more and prints the table."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator

import pytest

from tests.faults.__main__ import gates, line
from tests.faults.bench import Bench, on_disk
from tests.faults.judge import Verdict
from tests.faults.programs_at_random import contradictions
from tests.faults.scenario import MS, SCENARIOS
from tests.faults.suite import damaged, direct, drawn, robust, verdicts

pytestmark = pytest.mark.ebpf
SEED = int(os.environ.get("FAULT_SEED") or random.randrange(10**6))
PART = 10  # scenarios in one test, so that none takes long


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One for all: it compiles programs and writes a large file."""
    directory = on_disk()
    yield Bench(directory)
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def judged() -> list[Verdict]:
    """Filled by the tests that run scenarios, for the one that counts."""
    return []


@pytest.mark.parametrize("start", range(0, len(SCENARIOS), PART))
def test_causes_are_found_and_sized(bench: Bench, judged: list[Verdict], start: int) -> None:
    names = list(SCENARIOS)[start : start + PART]
    print(f"seed {SEED}")
    ours = []
    for one in verdicts(bench, drawn(SEED, names), f"part-{start}"):
        print(line(one.row), one.run.scenario.parameters)
        ours.append(one)
    judged += ours
    wrong = [f"{one.run.scenario.id}: {miss}" for one in ours for miss in one.misses if one.first]
    assert not wrong, f"seed {SEED}: {wrong}"


@pytest.mark.parametrize("part", range(4))
def test_what_is_called_empty_is_empty(bench: Bench, part: int) -> None:
    start = SEED * 1000 + part * 50
    proved, wrong = contradictions(bench, range(start, start + 50))
    assert proved > MS, "the programs leave something to prove"
    assert not wrong, wrong


def test_the_first_cause_is_right(judged: list[Verdict]) -> None:
    failed = [text for text in gates(judged) if text.startswith("first cause")]
    assert not failed, f"seed {SEED}: {failed}"


def test_nothing_false_is_called_proved(bench: Bench) -> None:
    wrong = [f"{one.run.scenario.id}: {miss}" for one in robust(bench, SEED) for miss in one.misses]
    assert not wrong, f"seed {SEED}: {wrong}"


def test_the_present_is_explained_like_a_file(bench: Bench) -> None:
    wrong = [f"{one.run.scenario.id}: {miss}" for one in direct(bench, SEED) for miss in one.misses]
    assert not wrong, f"seed {SEED}: {wrong}"


def test_lost_records_are_found(bench: Bench) -> None:
    wrong = [f"{text}: {misses}" for text, misses in damaged(bench, SEED) if misses]
    assert not wrong, f"seed {SEED}: {wrong}"
