"""Whichever call into the system fails, and how: gputop ends in time, with a sentence or with less detail."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from replay.reader import SessionReader
from tests.cli_support import assert_one_sentence, run
from tests.failing.harness import COMMANDS, ERRORS, FAMILIES, Case, Machine, Outcome, places
from tests.failing.judge import complaints

SEED = os.environ.get("GPUTOP_FAILING_SEED", "1")  # with others other calls fail
OF_FILES = ("open", "read", "write", "memory")  # what commands use that only read a recording
LIVE = ("once", "record", "check")


class Runs:
    """Runs cases, and knows how many calls there are to fail."""

    def __init__(self, folder: Path) -> None:
        self._machine = Machine(folder)
        self._numbers = count()
        self._calls: dict[str, dict[str, int]] = {}

    def run(self, case: Case) -> Outcome:
        return self._machine.run(case, str(next(self._numbers)))

    def calls(self, command: str, family: str) -> int:
        """How often a command makes calls of a family where none fails."""
        if command not in self._calls:
            outcome = self.run(Case(command))
            assert (outcome.failed, complaints(outcome)) == (0, []), outcome.said
            self._calls[command] = outcome.calls
        return self._calls[command][family]

    def wrong(self, cases: Iterable[Case]) -> list[str]:
        """What is wrong with what came of any of them."""
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(self.run, cases))
        return [
            f"{outcome.case} ({outcome.about}): {text}: {outcome.said[-400:]}"
            for outcome in outcomes
            for text in complaints(outcome)
        ]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("failing"))


def one_of_each(runs: Runs, command: str, families: Iterable[str]) -> Iterator[Case]:
    """A case of each family: some call, failing in some way."""
    for family in families:
        choose = random.Random(f"{SEED} {command} {family}")
        nth = choose.randint(1, runs.calls(command, family))
        yield Case(command, family, nth, choose.choice(ERRORS[family]))


@pytest.mark.long
def test_a_recording_is_read_or_a_sentence_says_why_not(runs: Runs) -> None:
    assert runs.wrong(one_of_each(runs, "stats", OF_FILES)) == []


@pytest.mark.ebpf
def test_a_command_is_recorded_or_a_sentence_says_why_not(runs: Runs) -> None:
    assert runs.wrong(one_of_each(runs, "record", ("write", "mmap", "bpf"))) == []


REFUSED_LATER = """
import sys
from gputop.commands.cli import run
from probes.ebpf.bpfcall import BatchReader

def read_thrice(self, read=BatchReader.read, times=[]):
    times.append(self)
    if times.count(self) > 3:
        raise PermissionError(1, "Operation not permitted")
    return read(self)

BatchReader.read = read_thrice
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.ebpf
def test_what_was_seen_until_the_kernel_refuses_more_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "run.gputop"
    words = ("record", "-o", str(file), "--lines", "off", "--duration", "60")
    done = run(*words, program=(sys.executable, "-c", REFUSED_LATER))
    assert_one_sentence(done, 1, "a system call failed (Operation not permitted); see gputop check; ")
    assert done.stderr.endswith(f"the recording until then is complete: {file}\n")
    reader = SessionReader(file)
    assert (len(reader.marks), reader.problems) == (3, [])
    reader.close()


def swept() -> Iterator[object]:
    for command in COMMANDS:
        for family in FAMILIES if command in LIVE else OF_FILES:
            for error in ERRORS[family]:
                marks = [pytest.mark.ebpf] if command in LIVE else []
                yield pytest.param(command, family, error, marks=marks)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("command", "family", "error"), list(swept()))
def test_wherever_a_call_fails(runs: Runs, command: str, family: str, error: str) -> None:
    choose = random.Random(f"{SEED} {command} {family} {error}")
    total = runs.calls(command, family)
    cases = [Case(command, family, nth, error) for nth in places(total, 6, choose)]
    # Python tries again what was interrupted, and has nothing left to do anything with without memory
    if error != "EINTR" and family != "memory":
        cases += [Case(command, family, nth, error, on=True) for nth in places(total, 3, choose)]
    assert runs.wrong(cases) == []
