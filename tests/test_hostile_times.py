"""A file whose times contradict each other: a sentence that names it, from every command that explains."""

from __future__ import annotations

import importlib
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gputop.commands import cli
from gputop.errors import AccountingError
from probes.source import Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests.conftest import needed

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
