"""Readers of what others write, under inputs that nobody has thought of: a few each time, many at length.

At length: ``make test-long``, ten minutes a target, or GPUTOP_FUZZ_SECONDS; guided by coverage where there
is atheris.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp

import pytest

from tests.confined_child import in_child
from tests.fuzz import child
from tests.fuzz.__main__ import run
from tests.fuzz.target import NAMES, Target, target

_SECONDS = float(os.environ.get("GPUTOP_FUZZ_SECONDS", "600"))
_STARTS_S = 600  # to start and to end, on a busy machine
_FEW = {"sessions": 6, "traces": 20, "lake_files": 20, "line_tables": 40}
_USUAL = 80


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that root trusts: preferences are read from no other."""
    base = Path.home() if os.geteuid() == 0 else None
    with TemporaryDirectory(prefix=".gputop-test-", dir=base) as name:
        yield Path(name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_reader_takes_what_our_writers_make_and_what_comes_of_it(name: str, folder: Path) -> None:
    subject = target(name)
    seeds = subject.seeds()
    for data in seeds:
        subject.run(data, folder)
    for number in range(_FEW.get(name, _USUAL)):
        random = Random(f"{name} {number}")
        data = subject.mutate(random.choice(seeds), random)
        subject.run(subject.mutate(data, random), folder)


@pytest.mark.slow
def test_what_breaks_a_reader_is_kept_once_with_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody expects, too much memory, too much time."""

    def broken(data: bytes, _folder: Path) -> None:
        if data == b"error":
            raise ZeroDivisionError
        room = bytearray((2 * child.MEMORY_BYTES if data == b"memory" else 0) + 1)
        if data == b"much":
            room = bytearray(b"x") * (64 << 20)
        while data == b"time":
            room[0] ^= 1

    subject = Target(lambda: [b""], lambda data, _random: data, broken)
    monkeypatch.setattr("tests.fuzz.target.target", lambda _name: subject)
    monkeypatch.setattr(child, "CPU_S", 0.2)
    runner = child.Runner("any", tmp_path)
    for data in (b"", b"error", b"memory", b"time", b"error", b"much", b""):
        runner(data)
    kept = {
        path.read_bytes(): path.with_suffix(".txt") for path in tmp_path.glob("input-*") if not path.suffix
    }
    assert set(kept) == {b"error", b"memory", b"time"}
    assert kept[b"error"].read_text().startswith("ZeroDivisionError at ")
    assert kept[b"time"].read_text().startswith("TooSlowError at ")
    assert child.input_at_work(tmp_path / "current") == (7, b"")
    slowest_s, memory, _left = child.taken(tmp_path / "current")
    assert slowest_s >= 0.1  # the limit, as finely as the kernel counts a process's time
    assert 60 << 20 <= memory <= 2 * child.MEMORY_BYTES


def test_a_reader_that_keeps_what_each_input_took_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bytearray] = []
    subject = Target(
        lambda: [b""], lambda data, _random: data, lambda _data, _: kept.append(bytearray(b"x") * (4 << 20))
    )
    monkeypatch.setattr("tests.fuzz.target.target", lambda _name: subject)
    monkeypatch.setattr(child, "MEMORY_BYTES", 64 << 20)
    monkeypatch.setattr(child, "EACH", 1)
    monkeypatch.setattr(child, "FIRST", 0)
    monkeypatch.setattr(child, "say", lambda _text: None)  # what pytest would show is closed there

    def found() -> list[list[str]]:
        runner, after = child.Runner("any", tmp_path), []
        for inputs in (range(12), range(12, 24)):
            for number in inputs:
                runner(bytes([number]))
            after.append([kind.split()[0] for kind in runner.kinds])
        return after

    # in a process of its own: threads of other tests give memory back in this one. What those tests left
    # stays as it is there: some libraries cannot end in a process without their threads
    assert in_child(gc.freeze, found) == "[[], ['GrownError']]", "so much may stay, and no more"
    assert child.taken(tmp_path / "current")[2] > 64 << 20


def test_what_one_input_takes_and_gives_back_is_no_growth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Target(
        lambda: [b""], lambda data, _random: data, lambda _data, _: bytearray(b"x") * (48 << 20) and None
    )
    monkeypatch.setattr("tests.fuzz.target.target", lambda _name: subject)
    monkeypatch.setattr(child, "MEMORY_BYTES", 64 << 20)
    monkeypatch.setattr(child, "EACH", 1)
    monkeypatch.setattr(child, "FIRST", 0)

    def left_behind() -> tuple[set[str], bool]:
        runner = child.Runner("any", tmp_path)
        for number in range(3):
            runner(bytes([number]))  # what a new process touches for the first time stays, too
        before = runner.left
        for number in range(10):
            runner(bytes([number]))
        return runner.kinds, runner.left - before < 8 << 20

    # in a process of its own: threads of other tests take memory in this one
    assert in_child(gc.freeze, left_behind) == "(set(), True)"


def test_a_target_runs_in_a_process_of_its_own(folder: Path) -> None:
    given = folder / "given"
    given.write_bytes(b"")
    outcome = run("interpreter_memory", folder / "out", "--input", str(given), seconds=1)
    assert (outcome.inputs, outcome.text) == (1, "")


@pytest.mark.long
@pytest.mark.timeout(1.2 * _SECONDS + _STARTS_S)
@pytest.mark.parametrize(
    "name",  # three at a time: ten minutes each
    [pytest.param(name, marks=pytest.mark.xdist_group(f"fuzz {at % 3}")) for at, name in enumerate(NAMES)],
)
def test_a_reader_takes_whatever_comes_for_minutes(name: str) -> None:
    """Guided where that can be had, then a tenth of the time without: only then its memory is its own."""
    base = Path.home() if os.geteuid() == 0 else None
    for seconds, words in ((_SECONDS, ()), (_SECONDS / 10, ("--plain",))):
        kept = Path(mkdtemp(prefix="gputop-fuzz-", dir=base))
        outcome = run(name, kept, *words, seconds=seconds)
        print(f"{name}: {outcome.figures}")
        assert not outcome.text, outcome.text  # and it stays where it is, to be looked at
        rmtree(kept)
        assert outcome.inputs > 10
