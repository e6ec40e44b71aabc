"""A crash while the screen is up gives the terminal back, whatever has crashed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.cli_support import complete, wait_for_size
from tests.gputop_command import GPUTOP
from tests.processes import command_of, started_child, state_of
from tests.screen_program import started
from tests.waiting import wait_until

TIMEOUT_S = 180


def read_until(terminal: int, text: bytes, output: bytes = b"") -> bytes:
    """What is shown until this is."""
    deadline = time.monotonic() + TIMEOUT_S
    while text not in output:
        assert time.monotonic() < deadline, f"{text!r} is not shown: {output[-300:]!r}"
        if select.select([terminal], [], [], 0.1)[0]:
            output += os.read(terminal, 65_536)
    return output


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGKILL])
@pytest.mark.mainly("6", "11")
def test_a_crash_gives_the_terminal_back_and_says_so_outside_of_the_screen(number: signal.Signals) -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    process = started(slave)
    try:
        shown = read_until(master, b"Processes")
        assert not termios.tcgetattr(slave)[3] & termios.ICANON
        process.send_signal(number)
        shown = read_until(master, b"the terminal has been restored", shown)
        assert process.wait(TIMEOUT_S) == -number
        assert termios.tcgetattr(slave)[:4] == before[:4]
        screen, _, outside = shown.rpartition(b"\x1b[?1049l")
        assert b"\x1b[?1049h" in screen
        assert b"\x1b[?25h" in outside, "the cursor is shown"
        assert b"gputop: ended by a crash" in outside
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def test_who_ends_by_himself_is_not_reported_to_have_crashed() -> None:
    master, slave = pty.openpty()
    process = started(slave)
    try:
        shown = read_until(master, b"Processes")
        os.write(master, b"q")
        shown = read_until(master, b"\x1b[?1049l", shown)
        assert process.wait(TIMEOUT_S) == 0
        while select.select([master], [], [], 0)[0]:
            shown += os.read(master, 65_536)
        assert b"restored, and" not in shown
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def test_a_terminal_that_vanishes_without_a_signal_ends_the_screen() -> None:
    """One that is not the process's own, as behind setsid: the kernel sends no SIGHUP."""
    master, slave = pty.openpty()
    process = started(slave)
    os.close(slave)
    try:
        read_until(master, b"Processes")
        os.close(master)
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGHUP
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGTSTP])
def test_a_signal_that_meets_a_write_to_the_terminal_is_heeded_behind_it(number: signal.Signals) -> None:
    """A terminal that goes while a write waits sends SIGCONT: gputop waited for itself, and recorded on."""
    master, slave = pty.openpty()
    process = started(slave, "meet", str(int(number)))
    try:
        shown = read_until(master, b"\x1b[?1049l")
        if number == signal.SIGTSTP:
            wait_until(lambda: state_of(process.pid) == "T", "the process to stop")
            process.send_signal(signal.SIGCONT)
        again = read_until(master, b"\x1b[?1049h", shown.partition(b"\x1b[?1049l")[2])
        read_until(master, b"Quit", again.partition(b"\x1b[?1049h")[2])
        os.write(master, b"q")
        read_until(master, b"\x1b[?1049l")
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


@pytest.mark.ebpf
def test_a_terminal_that_vanishes_ends_the_screen_its_recording_and_its_command(tmp_path: Path) -> None:
    file = tmp_path / "x"
    master, slave = pty.openpty()
    words = ["--lines", "off", "--record", str(file), "--", "sleep", "62"]
    process = subprocess.Popen(
        [*GPUTOP, *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )
    os.close(slave)
    child = ""
    try:
        read_until(master, b"WHY")
        wait_for_size(file, 4000)
        child = started_child(process.pid, "sleep 62")
        os.close(master)
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGHUP
        assert complete(file)
        wait_until(lambda: command_of(child) != "sleep 62", "the end of the command")
    finally:
        process.kill()
        process.wait()
        if child and command_of(child) == "sleep 62":
            os.kill(int(child), signal.SIGKILL)
