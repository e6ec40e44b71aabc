"""One datagram of anybody: what it names fits a recording, or is refused in a sentence."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from probes.inside.annotations import Annotations, Datagram
from probes.source import PROBLEM
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests.items import HEADER, START, mark

HUGE = 10**30  # as JSON has it, and no column of a recording
USER, ROOT = 1000, 0
REFUSED = {
    "thread": {"mark": "a", "thread": HUGE},
    "thread-below": {"begin": "a", "thread": -HUGE, "pid": HUGE},
    "process": {"mark": "a", "pid": HUGE},
    "no-process": {"begin": "a", "pid": 1 << 32},
}


def written(message: bytes, uid: int, folder: Path) -> list[str]:
    """Names in the recording of a process that sends this, after it went through a file; else sentences."""
    taken = Annotations()
    taken.consume(Datagram(message, os.getpid(), uid, START + 1))
    samples = list(taken.at_mark(START + 10, {os.getpid(), 1 << 32, HUGE}, last=True))
    with closing(SessionWriter(folder / "one", HEADER)) as writer:
        for sample in (*samples, mark(1, START + 10)):
            writer.write(sample)
    problems = [sample.data["text"] for sample in samples if sample.kind == PROBLEM]
    with closing(SessionReader(folder / "one")) as reader:
        names = [text for item in reader.items() for text in getattr(item, "data", {}).get("texts", ())[-1:]]
    return problems or names


@pytest.mark.parametrize("uid", [USER, ROOT])
@pytest.mark.parametrize("message", REFUSED)
def test_numbers_that_no_process_has_are_refused(message: str, uid: int, tmp_path: Path) -> None:
    (why,) = written(str(REFUSED[message]).replace("'", '"').encode(), uid, tmp_path)
    assert "1 annotations are left out" in why


@pytest.mark.parametrize("name", [r"\ud800 epoch", r"epoch \udfff", r"\udfff\ud800"])
def test_half_characters_become_question_marks(name: str, tmp_path: Path) -> None:
    (kept,) = written(f'{{"mark": "{name}"}}'.encode(), USER, tmp_path)
    assert kept == name.replace(r"\ud800", "?").replace(r"\udfff", "?")
