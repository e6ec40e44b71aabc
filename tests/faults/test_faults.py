"""The fault suite: one scenario of each kind in ``make test``, each with three seeds in ``make test-long``.

``make fault-suite`` prints the table and holds every gate. Here causes, levels, silence on healthy programs
and the soundness of proofs are demanded of every run in which the fault was what cost most. Where the machine
took more than the fault did, which the truth tells, no more is asked than that nothing false is called
proved. A busy machine moves milliseconds from one cause to another, so a few sizes may miss their tolerance.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

import pytest

from tests.faults.__main__ import line
from tests.faults.bench import Bench, on_disk
from tests.faults.judge import disturbed, false_proofs
from tests.faults.programs_at_random import contradictions
from tests.faults.robust import ROBUST
from tests.faults.scenario import SCENARIOS
from tests.faults.suite import damaged, direct, drawn, robust, verdicts

pytestmark = [pytest.mark.dear, pytest.mark.ebpf, pytest.mark.xdist_group("faults")]
SEEDS = (1, 2, 3)
SIZES = re.compile(r"C\d\d: (at most|at least|only) |.* ms unexplained$")
MISSIZED = 3  # of the scenarios of one part
MISJUDGED = 1  # of one part; make fault-suite allows one in 24
# reads, copies, launches, loaders, its CPU, a lock; no fault
QUICK = ("T01", "T05", "T06", "T08", "T13", "T16", "N1", "N5")
QUICK_ROBUST = ("R4", "R7")
PROGRAMS = 34  # random ones, of each seed
PART = 10  # scenarios in one test, so that none takes long
PARTS = [(seed, start) for seed in SEEDS for start in range(0, len(SCENARIOS), PART)]


def seed_of(test: int) -> int:
    """The seed of a test, by its number; ``FAULT_SEED`` asks for one for all."""
    return int(os.environ.get("FAULT_SEED") or SEEDS[test % len(SEEDS)])


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One for all: it compiles programs and writes a large file."""
    directory = on_disk()
    yield Bench(directory)
    shutil.rmtree(directory)


def assert_told(bench: Bench, seed: int, names: list[str], label: str) -> None:
    """What is reported of these scenarios is right, wherever the fault was what cost most."""
    print(f"seed {seed}")
    missed, hidden, misjudged = [], [], []
    for one in verdicts(bench, drawn(seed, names), label):
        print(line(one.row), one.run.scenario.parameters)
        told = one.run.scenario.id
        if why := disturbed(one.run):
            print(f"{told} proves nothing: {why}")
            hidden += [
                f"{told}: {miss}" for miss in (false_proofs(one.run, one.said) if one.said else one.misses)
            ]
        elif one.first:
            missed += [f"{told}: {miss}" for miss in one.misses]
        else:
            misjudged.append(told)
    wrong = [miss for miss in missed if not SIZES.match(miss.partition(": ")[2])]
    assert not hidden + wrong, f"seed {seed}: {hidden + wrong}"
    assert len({miss.split(":")[0] for miss in missed}) <= MISSIZED, f"seed {seed}: {missed}"
    assert len(misjudged) <= MISJUDGED, f"seed {seed}: {misjudged}"


def test_causes_are_found_and_sized(bench: Bench) -> None:
    assert_told(bench, seed_of(0), list(QUICK), "quick")


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("seed", "start"), PARTS)
def test_all_causes_are_found_and_sized(bench: Bench, seed: int, start: int) -> None:
    names = list(SCENARIOS)[start : start + PART]
    assert_told(bench, seed_of(SEEDS.index(seed)), names, f"part-{seed}-{start}")


@pytest.mark.parametrize("test", [0, *(pytest.param(more, marks=pytest.mark.long) for more in (1, 2))])
def test_what_is_called_empty_is_empty(bench: Bench, test: int) -> None:
    start = seed_of(test) * 1000
    proved, wrong = contradictions(bench, range(start, start + PROGRAMS))
    assert proved > 0, "the programs leave something to prove, also where they are starved of CPU"
    # what bounds the idle time from above suffers from the host's own scheduling: the long form looks at it
    false = [text for text in wrong if "is called empty" in text]
    assert not false, false


@pytest.mark.parametrize(
    "names", [QUICK_ROBUST, pytest.param(tuple(ROBUST), marks=pytest.mark.long)], ids=["quick", "all"]
)
def test_nothing_false_is_called_proved(bench: Bench, names: tuple[str, ...]) -> None:
    judged = robust(bench, seed_of(1), names)
    wrong = [f"{one.run.scenario.id}: {miss}" for one in judged for miss in one.misses]
    assert not wrong, wrong


@pytest.mark.long
def test_the_present_is_explained_like_a_file(bench: Bench) -> None:
    """A busy machine moves milliseconds from one cause to another: a few sizes may miss their tolerance."""
    missed = [
        (one.run.scenario.id, miss)
        for one in direct(bench, seed_of(2))
        if not disturbed(one.run)
        for miss in one.misses
    ]
    assert [one for one in missed if not SIZES.match(one[1])] == []
    assert len({scenario for scenario, _miss in missed}) <= MISSIZED, missed


def test_lost_records_are_found(bench: Bench) -> None:
    wrong = [f"{text}: {misses}" for text, misses in damaged(bench, seed_of(0)) if misses]
    assert not wrong, wrong
