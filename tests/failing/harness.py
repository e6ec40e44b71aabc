"""Runs gputop with one call into the system failing: which of which family, and how."""

from __future__ import annotations

import errno
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.processes import with_variable

HERE = Path(__file__).resolve().parent
RECORDING = HERE.parents[1] / "recordings" / "healthy.msgpack"
WATCHED_STATUS = 7  # of watched.c
TIMEOUT_S = 180.0

FAMILIES = ("open", "read", "write", "mmap", "memory", "bpf", "perf_event_open")
ERRORS = {
    "open": ("EMFILE", "ENFILE", "EACCES", "EIO", "ENOMEM", "EINTR", "ENOENT"),
    "read": ("EIO", "EINTR", "ENOMEM"),
    "write": ("ENOSPC", "EIO", "EINTR", "EPIPE"),
    "mmap": ("ENOMEM",),
    "memory": ("ENOMEM",),
    "bpf": ("EPERM", "ENOMEM", "EINVAL"),
    "perf_event_open": ("EMFILE", "EPERM", "ENODEV"),
}
#: What is run; {watched} is the command, {file} a recording that is made or that is there.
COMMANDS = {
    "once": ("--once", "--simgpu", "--", "{watched}"),
    "record": ("record", "--lines", "off", "-o", "{file}", "--simgpu", "--", "{watched}"),
    "replay": ("replay", "{file}", "--once"),
    "explain": ("explain", "{file}"),
    "stats": ("stats", "{file}"),
    "check": ("check",),
}
_TALLY = struct.Struct(f"{len(FAMILIES)}QQ200s")
_LEFT_S = 10.0  # for what gputop started to notice that it has ended


@dataclass(frozen=True, slots=True)
class Case:
    """One run: the n-th call of a family fails, or with ``on`` every one from there; 0 fails none."""

    command: str
    family: str = "open"
    nth: int = 0
    error: str = "EIO"
    on: bool = False

    def __str__(self) -> str:
        return f"{self.command}: {self.family} {self.nth}{' and on' if self.on else ''} {self.error}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        case: What was run.
        status: Exit status, negative for a signal; None: it did not end in time.
        output: Standard output.
        said: Standard error.
        calls: By family, how often it was called.
        failed: How many calls failed.
        about: File of the first call that failed, as far as it is known.
        file: The recording.
        left: Processes that it left behind, and files.
    """

    case: Case
    status: int | None
    output: str
    said: str
    calls: dict[str, int]
    failed: int
    about: str
    file: Path
    left: tuple[str, ...]


class Machine:
    """A folder with what is compiled for these runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._library, self._watched = folder / "refuses.so", folder / "watched"
        build = ("cc", "-O1", "-Wall", "-Werror", "-o")
        shared = ("-shared", "-fPIC", str(HERE / "refuses.c"), "-ldl")
        subprocess.run([*build, str(self._library), *shared], check=True)
        subprocess.run([*build, str(self._watched), str(HERE / "watched.c"), "-ldl"], check=True)

    def run(self, case: Case, name: str) -> Outcome:
        """Runs a case in a folder of its own, which it names."""
        folder = self.folder / name
        temporary = folder / "tmp"
        temporary.mkdir(parents=True)
        tally = folder / "tally"
        tally.write_bytes(bytes(_TALLY.size))
        file = folder / "run.gputop" if case.command == "record" else RECORDING
        words = [word.format(file=file, watched=self._watched) for word in COMMANDS[case.command]]
        with open(folder / "out", "w+b") as output, open(folder / "err", "w+b") as said:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "entry.py"), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=said,
                env=self._environment(case, tally) | {"TMPDIR": str(temporary), "SIMGPU_INIT_MS": "0"},
                start_new_session=True,
            )
            try:
                status: int | None = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                status = None
                process.kill()
                process.wait()
        *calls, failed, about = _TALLY.unpack(tally.read_bytes())
        return Outcome(
            case,
            status,
            (folder / "out").read_text(errors="replace"),
            (folder / "err").read_text(errors="replace"),
            dict(zip(FAMILIES, calls, strict=True)),
            failed,
            os.fsdecode(about.rstrip(b"\0")),
            file,
            (*_left(str(tally)), *(path.name for path in temporary.iterdir())),
        )

    def _environment(self, case: Case, tally: Path) -> dict[str, str]:
        failing = {"FAILING_MARKER": str(self.folder / "no marker"), "FAILING_TALLY": str(tally)}
        if case.nth:
            failing |= {
                "FAILING_FAMILY": case.family,
                "FAILING_NTH": str(case.nth),
                "FAILING_ERRNO": str(getattr(errno, case.error)),
            }
        if case.on:
            failing["FAILING_ON"] = "1"
        return {**os.environ, **failing, "LD_PRELOAD": str(self._library)}


def _left(mark: str) -> list[str]:
    """Processes that have inherited this word in their environment and do not end."""
    deadline = time.monotonic() + _LEFT_S
    while (found := with_variable(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def places(total: int, count: int, choose: random.Random) -> Sequence[int]:
    """Which of ``total`` calls fail: the first and the last, the one in the middle, others at random."""
    fixed = {1, total, (total + 1) // 2} if total else set()
    others = sorted(set(range(1, total + 1)) - fixed)
    return sorted(fixed | set(choose.sample(others, min(max(count - len(fixed), 0), len(others)))))
