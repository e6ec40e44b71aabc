"""The screen on a real pseudo-terminal: it comes, it goes, and the terminal is as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.processes import state_of
from tests.screen_program import started
from tests.waiting import HANGS_S, until_good


@dataclass
class Ended:
    """How a run on a pseudo-terminal ended."""

    status: int
    output: str
    restored: bool
    seconds_to_end: float


def run_on_terminal(*arguments: str, keys: bytes = b"q", kill: int = 0, **env: str) -> Ended:
    """Run the program for a second, press keys or send a signal, and look at the terminal afterwards."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    process = started(slave, *arguments, COLORTERM="truecolor", **env)
    output, deadline, acted = b"", time.monotonic() + HANGS_S, 0.0
    seen = 0.0
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.02)[0]:
            output += os.read(master, 65_536)
        if not seen and b"Processes" in output:
            seen = time.monotonic()
        if seen and not acted and time.monotonic() - seen > 0.8 and process.poll() is None:
            acted = time.monotonic()
            if kill:
                process.send_signal(kill)
            else:
                os.write(master, keys)
        if process.poll() is not None and not select.select([master], [], [], 0.05)[0]:
            break
    ended = time.monotonic()
    after = termios.tcgetattr(slave)
    restored = after[:4] == before[:4] and b"\x1b[?1049l" in output
    os.close(master)
    os.close(slave)
    return Ended(process.wait(HANGS_S), output.decode("utf-8", "replace"), restored, ended - (acted or ended))


@pytest.mark.timed
def test_q_ends_quickly_and_gives_the_terminal_back() -> None:
    def run() -> float:
        ended = run_on_terminal()
        assert ended.status == 0
        assert ended.restored
        return ended.seconds_to_end

    assert until_good(run, lambda seconds: seconds < 1.5) < 1.5


def test_ctrl_c_ends_like_top() -> None:
    ended = run_on_terminal(keys=b"\x03")
    assert (ended.status, ended.restored) == (0, True)


def test_a_crash_is_one_sentence_and_status_1() -> None:
    ended = run_on_terminal("crash")
    assert (ended.status, ended.restored) == (1, True)
    after = ended.output.rsplit("\x1b[?1049l", 1)[1]
    assert "gputop: the screen failed: ValueError: a broken \\x1b[31mframe" in after
    assert "Traceback" not in after


def test_sigterm_gives_the_terminal_back() -> None:
    ended = run_on_terminal(kill=signal.SIGTERM)
    assert (ended.status, ended.restored) == (128 + signal.SIGTERM, True)


def test_words_of_native_libraries_are_held_back_and_counted() -> None:
    ended = run_on_terminal("native")
    during, after = ended.output.rsplit("\x1b[?1049l", 1)
    assert "NVRM" not in during
    assert "NVRM: Xid 79" in after
    assert "2 lines that libraries wrote during the run:" in after


def codes_of(output: str) -> set[str]:
    """The codes for looks that were sent: ``1`` is bold, ``38;2;…`` a colour, 39 and 49 the usual ones."""
    found = set()
    for codes in re.findall(r"\x1b\[([\d;]+)m", output):
        left = codes.split(";")
        while left:
            code = left.pop(0)
            rest = (4 if left[0] == "2" else 2) if code in ("38", "48") else 0
            found.add(";".join([code, *left[:rest]]))
            left = left[rest:]
    return found


def test_no_color_sends_no_colour_at_all_and_the_meaning_stays() -> None:
    ended = run_on_terminal(NO_COLOR="1")
    assert ended.status == 0
    bold, faint, underline, reverse = "1", "2", "4", "7"
    assert codes_of(ended.output) <= {"0", "39", "49", bold, faint, underline, reverse}
    assert reverse in codes_of(ended.output), "what is selected is shown in reverse"
    assert "▲ storm" in ended.output


@pytest.mark.parametrize("by", ["ctrl+z", "SIGSTOP"])
def test_one_that_was_held_paints_the_whole_screen_again_and_gives_the_terminal_back(by: str) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    process = started(slave)

    def read_until(done: Callable[[bytes], bool]) -> bytes:
        output, deadline = b"", time.monotonic() + 60
        while not done(output):
            assert time.monotonic() < deadline, output[-500:]
            if select.select([master], [], [], 0.02)[0]:
                output += os.read(master, 65_536)
        return output

    def stopped(_output: bytes = b"") -> bool:
        return state_of(process.pid) == "T"

    try:
        read_until(lambda output: b"Processes" in output and b"Quit" in output)
        if by == "ctrl+z":
            os.write(master, b"\x1a")
            read_until(stopped)
            assert termios.tcgetattr(slave)[:4] == before[:4]
        else:
            process.send_signal(signal.SIGSTOP)
            read_until(stopped)
            termios.tcsetattr(slave, termios.TCSANOW, before)  # as a shell does that has it back
        process.send_signal(signal.SIGCONT)

        def painted_again(output: bytes) -> bool:  # before that, keys are not for it, and are lost
            again = output.partition(b"\x1b[?1049h")[2]
            return all(word in again for word in (b"WHY", b"Processes", b"Quit"))

        read_until(painted_again)
        os.write(master, b"q")
        read_until(lambda _: process.poll() is not None)
        assert process.returncode == 0
        assert termios.tcgetattr(slave)[:4] == before[:4]
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
