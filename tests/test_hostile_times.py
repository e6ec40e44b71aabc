"""A file whose times contradict each other: a sentence that names it, from every command that explains."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputop.analysis.live import LiveExplainer, ReplayExplainer
from gputop.commands import cli
from gputop.errors import AccountingError
from gputop.serve.clients.listening import listen
from gputop.serve.service import Service, Settings
from probes.source import MARK, Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import items
from tests.conftest import needed
from tests.waiting import wait_until

RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "numpy-sync.msgpack"
COMMANDS = {
    "explain": ("explain", "{file}"),
    "explain-json": ("explain", "{file}", "--json"),
    "replay": ("replay", "{file}", "--once"),
    "diff": ("diff", "{file}", str(RECORDING)),
    "report": ("report", "{file}", "-o", "{out}"),
    "perfetto": ("export", "{file}", "--to", "perfetto", "-o", "{out}"),
    "csv": ("export", "{file}", "--to", "csv", "-o", "{out}"),
    "sql": ("sql", "SELECT 1", "{file}"),
}


def contradict(*_given: object) -> None:
    raise AccountingError("the parts of 1 of 2 gaps do not add up: 3 of 4 ns at 5")


@pytest.mark.parametrize("command", COMMANDS)
def test_times_that_contradict_each_other_are_an_ordinary_error(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if command == "sql":
        needed("duckdb")
    analysis = importlib.import_module(
        "gputop.analysis.chains.analysis"
    )  # gputop.analysis is a function, too
    monkeypatch.setattr(analysis, "walk", contradict)
    shutil.copy(RECORDING, file := tmp_path / "edited.gputop")
    words = [word.format(file=file, out=tmp_path / "out") for word in COMMANDS[command]]
    assert cli.run(words) == 1
    said = capfd.readouterr().err
    assert str(file) in said
    assert "times that contradict each other" in said
    assert "should not have happened" not in said


FAR = 1 << 62  # ns
LATE = 28_317_757_199_833  # when one of the recording's calls ends


@pytest.mark.slow
def test_a_record_of_another_age_is_an_ordinary_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As random changes of recordings found it."""
    file = tmp_path / "edited.gputop"
    with closing(SessionReader(RECORDING)) as reader, closing(SessionWriter(file, reader.header)) as writer:
        for item in reader.items():
            if not isinstance(item, Sample):
                item = item.copy()
                item["t_end"][item["t_end"] == LATE] += np.uint64(FAR)
            writer.write(item)
    assert cli.run(["explain", str(file)]) == 1
    said = capfd.readouterr().err
    assert f"{file} holds times that contradict each other" in said


def broken(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next explanations find parts that do not add up."""
    analysis = importlib.import_module("gputop.analysis.chains.analysis")
    walk, left = analysis.walk, iter(range(times))

    def walks(*given: Any, **named: Any) -> Any:
        if next(left, None) is not None:
            contradict()
        return walk(*given, **named)

    monkeypatch.setattr(analysis, "walk", walks)


def assert_told(sentence: str) -> None:
    assert "times contradict each other (the parts of 1 of 2 gaps do not add up: 3 of 4 ns at 5)" in sentence
    assert "did a clock jump" in sentence
    assert "report it" in sentence
    assert "AccountingError" not in sentence


def test_the_screen_of_a_recording_goes_on_with_the_next_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(1, monkeypatch)
    with closing(SessionReader(RECORDING)) as reader, closing(ReplayExplainer(reader)) as explainer:
        explainer.start()
        explainer.show(len(reader.marks) - 1, exact=True)
        wait_until(lambda: explainer.failure, "what it says")
        assert_told(explainer.failure)
        explainer.show(len(reader.marks) - 2, exact=True)
        wait_until(lambda: explainer.verdict, "the next moment")
        assert explainer.failure == ""
        assert explainer.verdict is not None
        assert explainer.verdict.end_ns == reader.marks[len(reader.marks) - 2]


@pytest.mark.parametrize("shown", ["screen", "daemon"])
def test_a_live_explanation_begins_anew_and_all_else_goes_on(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(1, monkeypatch)
    if shown == "daemon":
        service = Service(
            items.HEADER, listen(str(tmp_path / "s")).socket, Settings("test"), lambda why: None
        )
        first = service.daemon.explainer
        service.start()
        take: Callable[[Item], Any] = service.consume
    else:
        first = LiveExplainer(items.HEADER)
        first.start()
        take = first.feed
    try:
        with closing(SessionReader(RECORDING)) as reader:
            for item in reader.items():
                take(item)
        wait_until(lambda: first.failure, "what it says")
        assert_told(first.failure)
        if shown == "daemon":
            with closing(SessionReader(RECORDING)) as reader:
                take(next(item for item in reader.items() if isinstance(item, Sample) and item.kind == MARK))
            assert service.explained_anew == 1
            assert not service.daemon.explainer.failure
    finally:
        if shown == "daemon":
            service.close("over")
        else:
            first.close()
