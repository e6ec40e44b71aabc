"""Runs gputop from outside, with and without a terminal, and makes a recording without one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from probes.api import BY_OP
from probes.schema import LOSS_KINDS
from probes.source import APIS, MARK, NAMES, PROCESS, Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests.gputop_command import GPUTOP
from tests.session_data import realistic
from tests.waiting import HANGS_S

RECORDING = Path(__file__).parents[1] / "recordings" / "healthy.msgpack"


def run(
    *arguments: str, program: Sequence[str] = GPUTOP, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs gputop without a terminal."""
    return subprocess.run(
        [*program, *arguments],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )


def run_after(
    *arguments: str, before: Callable[[], None] | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """gputop, after a child of ours has lost something."""
    return subprocess.run(
        [*GPUTOP, *arguments],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        preexec_fn=before,
        env=os.environ | env,
        check=False,
    )


def assert_one_sentence(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """It ended with one line on standard error that holds these words, and nothing on standard output."""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("gputop: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert (done.returncode, done.stdout) == (status, "")


def items(ticks: int = 4) -> Iterator[Item]:
    """What a live source yields for two processes that call CUDA."""
    records = realistic(4000)
    yield Sample(APIS, 1, {"rows": [[api.name, api.layer, api.group] for api in BY_OP]})
    for pid in sorted({int(pid) for pid in records["pid"]}):
        facts = {
            "pid": pid,
            "parent_pid": 1,
            "name": "python",
            "command": f"python train.py {pid}",
            "user": "root",
        }
        yield Sample(PROCESS, 2, {**facts, "start_ns": 1, "watched": True, "seen_ns": 2, "exited_ns": None})
    yield Sample(NAMES, 2, {"tid": [4000], "pid": [3990], "name": ["python"]})
    for number, part in enumerate(np.array_split(records, ticks), 1):
        end_ns = int(part["t_end"].max())
        yield part
        lost = dict.fromkeys(LOSS_KINDS, 0)
        yield Sample(MARK, end_ns, {"number": number, "wall_ns": end_ns, "lost": lost, "read": 1, "begun": 1})


def write_recording(path: Path) -> Path:
    """A recording of 0.2 s, made without eBPF."""
    start_ns = int(realistic(4000)["t_end"][0])
    clock = {"monotonic_ns": start_ns, "realtime_ns": 1_700_000_000_000_000_000, "utc_offset_s": 0}
    writer = SessionWriter(path, {"clock": clock, "start_ns": start_ns, "rate_hz": 4.0, "machine": {}})
    for item in items():
        writer.write(item)
    writer.close()
    return path


def complete(path: Path) -> bool:
    """Whether a recording ended in order: all of it can be read and nothing is missing."""
    reader = SessionReader(path)
    frames = sum(1 for item in reader.items() if getattr(item, "kind", "") == "mark")
    problems = reader.problems
    reader.close()
    return frames > 0 and not problems


def whole(path: Path) -> bool:
    """Whether all of a recording can be read and nothing is missing, be there frames in it or not."""
    reader = SessionReader(path)
    for _ in reader.items():
        pass
    problems = reader.problems
    reader.close()
    return not problems


def wait_for_size(path: Path, size: int) -> None:
    """Waits until a file has grown to so many bytes."""
    deadline = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < deadline, "nothing is recorded"
        time.sleep(0.05)


def on_terminal(
    *words: str, rows: int, columns: int, keys: bytes, shown: str = "[A-Za-z]{4}"
) -> tuple[int, str, bool]:
    """Runs gputop on a terminal, presses keys when its screen shows something (a regular expression).

    Returns:
        Status, output, and whether the terminal is as before.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(
        [*GPUTOP, *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        # pytest-xdist says how wide its own lines are
        env={key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        | {"TERM": "xterm-256color"},
        start_new_session=True,
    )
    output, deadline, pressed = b"", time.monotonic() + HANGS_S, False
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.05)[0]:
            output += os.read(master, 65_536)
        elif process.poll() is not None:
            break
        if not pressed and re.search(shown, output.partition(b"\x1b[?1049h")[2].decode(errors="replace")):
            pressed = True
            os.write(master, keys)
    restored = termios.tcgetattr(slave)[:4] == before[:4]
    restored &= output.count(b"\x1b[?1049h") == output.count(b"\x1b[?1049l")
    os.close(slave)
    os.close(master)
    try:
        return process.wait(HANGS_S), output.decode(errors="replace"), restored
    finally:
        process.kill()
