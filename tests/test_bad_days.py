"""What is missing or full when gputop starts is one sentence or less detail, never a traceback."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from replay.reader import SessionReader
from tests.cli_support import RECORDING, run_after
from tests.gputop_command import GPUTOP
from tests.waiting import HANGS_S


def close(*numbers: int) -> None:
    for number in numbers:
        os.close(number)


def two(*closed: int) -> object:
    """Of the pairs one in ``make test``."""
    return pytest.param(closed, marks=() if closed == (1, 2) else pytest.mark.long)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), two(0, 1), two(1, 2), two(0, 2), (0, 1, 2)])
@pytest.mark.mainly("closed0")
def test_closed_standard_streams_are_no_files_of_ours(closed: tuple[int, ...], tmp_path: Path) -> None:
    stats = run_after("stats", str(RECORDING), before=partial(close, *closed))
    if 1 in closed:
        assert stats.returncode == 1
        if 2 not in closed:
            assert stats.stderr == (
                "gputop: the output cannot be written: Bad file descriptor; nothing else was harmed\n"
            )
    else:
        assert stats.returncode == 0
        assert stats.stdout
        assert not stats.stderr
    kept = tmp_path / "kept.gputop"
    words = ("record", "--lines", "off", "-o", str(kept), "--duration", "0.2")
    run_after(*words, before=partial(close, *closed))
    reader = SessionReader(kept)
    assert len(reader.marks), "nothing that was said stands in the recording"
    reader.close()


def test_a_full_output_is_reported() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*GPUTOP, "stats", str(RECORDING)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=HANGS_S,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "gputop: the output cannot be written: No space left on device; nothing else was harmed\n"
    )
