"""A terminal that another program has made non-blocking: nothing of the screen is lost, no key ends it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from contextlib import suppress
from io import TextIOWrapper

import pytest
from textual.drivers.linux_driver import LinuxDriver

from gputop.ui.terminal.terminal_driver import QuickDriver, TerminalOutput
from tests.waiting import HANGS_S

TIMEOUT_S = 60
# a key comes while the program ends: the input thread finds it ready, and it is discarded before it is read
DISCARDED = """
import selectors, threading
from textual.app import App
from gputop.ui.terminal import terminal_driver

restored = threading.Event()

def found_ready(self, timeout=None):
    if self.get_map():
        restored.wait()
    return [(key, selectors.EVENT_READ) for key in self.get_map().values()]

class Ends(App):
    def on_mount(self):
        self.set_timer(0.3, self.exit)

class Driver(terminal_driver.QuickDriver):
    def stop_application_mode(self):
        super().stop_application_mode()
        restored.set()

selectors.SelectSelector.select = found_ready
Ends(driver_class=Driver).run()
"""


def test_what_has_no_room_on_a_terminal_is_written_once_there_is_some() -> None:
    master, slave = pty.openpty()
    os.set_blocking(slave, False)
    text = "".join(f"{number} ▇\n" for number in range(20_000))
    found = bytearray()

    def read_slowly() -> None:
        while not found.endswith(b"end"):
            time.sleep(0.0005)
            found.extend(os.read(master, 65_536))

    reader = threading.Thread(target=read_slowly, daemon=True)
    with TextIOWrapper(os.fdopen(slave, "wb", buffering=0), write_through=True) as file:
        output = TerminalOutput(file)
        reader.start()
        for begin in range(0, len(text), 7_000):
            output.write(text[begin : begin + 7_000])
        output.write("end")
        output.flush()
        reader.join(TIMEOUT_S)
    os.close(master)
    assert found.decode().replace("\r\n", "\n") == text + "end"


def test_who_has_lost_a_key_to_another_program_reads_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def read(driver: LinuxDriver) -> None:
        begun.append(len(begun))
        if len(begun) < 3:
            raise BlockingIOError

    monkeypatch.setattr(LinuxDriver, "run_input_thread", read)
    driver = QuickDriver.__new__(QuickDriver)
    driver.run_input_thread()
    assert begun == [0, 1, 2]


def test_a_key_that_is_discarded_while_the_program_ends_does_not_keep_it_from_ending() -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-c", DISCARDED]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)

        def drain() -> None:
            with suppress(OSError):
                while os.read(master, 65_536):
                    pass

        threading.Thread(target=drain, daemon=True).start()
        try:
            assert process.wait(HANGS_S / 8) == 0
        finally:
            process.kill()
    os.close(master)
