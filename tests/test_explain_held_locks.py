"""A lock whose holder never waits for it: the text of the line that waits tells that it is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probes.source import FRAMES, Sample
from tests import items
from tests.cause_stories import CODE, HOLDER, loop, stays
from tests.items import START
from tests.programs import FUTEX, MAIN, Program


def waiting_at(file: Path, library: str = "") -> Program:
    """Each step waits for 7 ms in a futex, until another thread of the process, which computes, ends it."""
    waits = {"waker_pid": MAIN, "waker_tid": HOLDER, "argument": 0x1000, "stack": CODE}
    program = loop(stays(FUTEX, **waits))
    program.thread(HOLDER)
    program.samples.append(items.names(START, {HOLDER: "logger"}))
    rows = [[library, 9, "get"]] if library else []
    rows.append([str(file), 1, "take"])
    program.samples.append(Sample(FRAMES, START, {"pid": [MAIN], "stack": [CODE], "frames": [rows]}))
    return program


@pytest.mark.parametrize(
    ("text", "library", "cause"),
    [
        ("with self.lock:", "", "C16"),
        ("lock.acquire()", "", "C16"),
        ("item = queue.get()", "", "C29"),
        ("item = queue.get()", "/usr/lib/python3.11/queue.py", "C29"),
        ("with self.filled:", "/usr/lib/python3.11/threading.py", "C29"),
    ],
)
def test_who_takes_a_lock_waits_for_its_holder(tmp_path: Path, text: str, library: str, cause: str) -> None:
    file = tmp_path / "serve.py"
    file.write_text(f"{text}\n")
    long_ago = items.HEADER["clock"]["realtime_ns"] // 10**9 - 1000
    os.utime(file, (long_ago, long_ago))
    first, *_ = waiting_at(file, library).report().findings
    assert first.cause == cause
    assert ("a lock, held by thread logger" in first.title) == (cause == "C16")
