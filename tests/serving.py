"""A daemon of `gputop serve` for a test: its own socket, folder and simulated machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gputop.serve.clients.client import request_once
from tests.ebpf.recording import TIMEOUT_S
from tests.gputop_command import GPUTOP, GPUTOP_APART
from tests.rootless_support import as_nobody, environment
from tests.waiting import wait_until

# what a process of a user's does: as many calls as it is told, a step each, and then it waits
CALLS = """
import os, sys, time
from cuda import Cuda
c = Cuda(); p = c.malloc(1 << 20)
print("ready", os.getpid(), flush=True)
count, pause = int(sys.argv[1]), float(sys.argv[2])
for _ in range(count):
    c.Memset(p, 0, 64)
    time.sleep(pause)
time.sleep(120)
"""


@dataclass
class Daemon:
    """One that runs.

    Attributes:
        home: Everything of it, and of the programs beside it.
        process: ``gputop serve``.
    """

    home: Path
    process: subprocess.Popen[str]

    @property
    def socket(self) -> str:
        """Where it listens."""
        return str(self.home / "gputop.sock")

    def status(self) -> dict[str, Any]:
        """What it tells root of itself."""
        told: dict[str, Any] = request_once(self.socket, "status")["data"]
        return told

    def client(self, *words: str, within: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """A command that asks it, to its end."""
        name, *rest = words
        command = [*within, *GPUTOP, name, "--socket", self.socket, *rest]
        return subprocess.run(
            command,
            env=environment(self.home),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def frame(self, *, within: Sequence[str] = (), seconds: float = 2.5) -> dict[str, Any]:
        """A frame as JSON, as `gputop attach` shows it: later where a slow machine had none by then."""
        for longer in (1, 6, 36):
            duration = ("--duration", str(seconds * longer))
            done = self.client("attach", "--once", "--json", *duration, within=within)
            if "no frame in that time" not in done.stderr:
                break
        assert done.returncode == 0, done.stderr
        frame: dict[str, Any] = json.loads(done.stdout)
        return frame


@contextmanager
def serving(
    home: Path, *flags: str, within: Sequence[str] = (), program: Sequence[str] = GPUTOP_APART
) -> Iterator[Daemon]:
    """A daemon that observes; it ends in order unless the test has ended it.

    Args:
        home: Where everything of it is.
        flags: Of ``gputop serve``.
        within: What starts it.
        program: What it is itself.
    """
    errors = (home / "daemon.err").open("w")
    process = subprocess.Popen(
        [
            *within,
            *program,
            "serve",
            "--simgpu",
            "--lines",
            "off",
            "--socket",
            str(home / "gputop.sock"),
            *flags,
        ],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        text=True,
        start_new_session=True,
    )
    daemon = Daemon(home, process)
    try:
        wait_until(lambda: process.poll() is not None or _answers(daemon), "the daemon")
        assert process.poll() is None, (home / "daemon.err").read_text()
        yield daemon
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)
        errors.close()


def _answers(daemon: Daemon) -> bool:
    return "observing" in (daemon.home / "daemon.err").read_text()


@contextmanager
def calling(
    home: Path,
    calls: int,
    pause: float,
    *marker: str,
    nobody: bool = False,
    env: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[int]:
    """A program that makes so many calls; its number.

    Args:
        home: Where the simulated GPUs meet.
        calls, pause: How many, and how long after each, in s.
        marker: Words that are seen in its command line.
        nobody: Whose it is.
        env: What its environment says beside the usual.
    """
    process = subprocess.Popen(
        [*(as_nobody() if nobody else ()), sys.executable, "-c", CALLS, str(calls), str(pause), *marker],
        env=environment(home) | dict(env),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        word, pid = process.stdout.readline().split()
        assert word == "ready"
        yield int(pid)
    finally:
        process.kill()
        process.wait()


def marks_go_on(daemon: Daemon, count: int = 3) -> None:
    """Waits until the daemon has closed so many more ticks."""
    before = daemon.status()["marks"]
    wait_until(lambda: daemon.status()["marks"] >= before + count, "further marks")
