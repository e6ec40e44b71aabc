"""An interrupt of what takes long ends it with what is known by then, and the answer says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gputop.api import stretches, totals
from gputop.api.functions import explain, stats
from gputop.commands import progress as bars
from gputop.engine.session_totals import collect
from gputop.engine.stats_output import stats_to_json
from gputop.errors import GputopError
from probes.source import MARK, Item, Sample
from replay.reader import SessionReader
from tests.waiting import HANGS_S

RECORDING = Path(__file__).parent.parent / "recordings" / "dataloader.msgpack"


class Stopping:
    """Is interrupted after so many marks, or so many parts."""

    def __init__(self, after: int) -> None:
        self.after, self.stopped, self.seen = after, False, 0

    def through(self, items: Iterable[Item], marks: int) -> Iterator[Item]:
        """The items up to that mark."""
        for item in items:
            yield item
            self.seen += isinstance(item, Sample) and item.kind == MARK
            if self.seen == self.after:
                self.stopped = True
                return

    def parts(self, done: int, of: int) -> None:
        """Interrupted after that part."""
        self.stopped = done >= self.after

    def goes_on(self, doing: str) -> None:
        """Nothing more is read."""


def part(marks: int) -> list[Item]:
    """The first items."""
    reader = SessionReader(RECORDING)
    try:
        return list(reader.items_between(-1, marks - 1))
    finally:
        reader.close()


def header() -> dict[str, object]:
    """Of the recording."""
    reader = SessionReader(RECORDING)
    reader.close()
    return reader.header


def test_totals_of_what_was_read_are_reported_as_such() -> None:
    found = stats(RECORDING, progress=Stopping(6))
    wanted = collect(header(), part(6))
    assert {**stats_to_json(found), "problems": 0} == {**stats_to_json(wanted), "problems": 0}
    assert found.problems[0].startswith("interrupted: this covers the first 1.")


def test_an_answer_about_what_was_read_is_reported_as_such() -> None:
    report = explain(RECORDING, progress=Stopping(10))
    assert report.notes[0].startswith("interrupted: this covers the first 2.")
    assert report.duration_ns < explain(RECORDING).duration_ns
    assert report.findings[0].cause == "C12"


@pytest.mark.long
def test_of_parts_those_that_are_joined_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "LONG_BYTES", 1)
    monkeypatch.setattr(totals, "SEGMENT_BYTES", 10_000)
    found = stats(RECORDING, progress=Stopping(3))
    whole = stats(RECORDING)
    assert 0 < found.events < whole.events
    assert any(text.startswith("interrupted: ") for text in found.problems)
    monkeypatch.setattr(stretches, "NEED", 1 << 14)
    monkeypatch.setattr(stretches, "LEAST_PART", 15_000)
    report = explain(RECORDING, progress=Stopping(2), memory_bytes=1 << 30)
    assert report.notes[0].startswith("interrupted: ")
    assert report.duration_ns < explain(RECORDING).duration_ns
    with pytest.raises(GputopError, match="interrupted before anything was known") as ended:
        explain(RECORDING, progress=Stopping(0), memory_bytes=1 << 30)
    assert ended.value.status == 130


def test_the_first_interrupt_ends_the_reading_and_the_second_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bars, "AFTER_S", 0.0)
    ended: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: ended.append(number))
    try:
        with bars.ProgressBar("reading", partial=True) as progress:
            taken = 0
            for _item in progress.through(part(15), 15):
                taken += 1
                if taken == 5:
                    os.kill(os.getpid(), signal.SIGINT)
            assert (taken, progress.stopped, ended) == (5, True, [])
            os.kill(os.getpid(), signal.SIGINT)
            assert ended == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is not before
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_of_what_is_short_ends_the_command_at_once() -> None:
    ended: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: ended.append(number))
    try:
        with bars.ProgressBar("reading", partial=True) as progress:
            for _item in progress.through(part(1), 1):
                os.kill(os.getpid(), signal.SIGINT)
                break
            assert (progress.stopped, ended) == (False, [signal.SIGINT])
    finally:
        signal.signal(signal.SIGINT, before)


SLOW = """
import sys, time
from gputop.commands import cli, progress
from replay.items import ItemReader
progress.AFTER_S = 0.0
rows = ItemReader.rows_of
def slowly(self, chosen):
    for item in rows(self, chosen):
        if not isinstance(item, int) and getattr(item, "kind", "") == "mark":
            sys.stderr.write("mark\\n"); sys.stderr.flush(); time.sleep(0.3)
        yield item
ItemReader.rows_of = slowly
sys.exit(cli.run(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["stats", "explain"])
def test_a_command_that_is_interrupted_prints_what_it_knows(command: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, command, str(RECORDING)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        for _ in range(5):
            assert child.stderr.readline() == "mark\n"
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=HANGS_S)
    assert child.returncode == bars.INTERRUPTED
    assert "interrupted: this covers the first" in " ".join(output.split())
