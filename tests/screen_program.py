"""A program that shows fake frames on a real terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


PROGRAM = """
import os, signal, sys
sys.path.insert(0, ".")
from textual.drivers._writer_thread import WriterThread
from tests import fake_frames as fake
from gputop.ui.model.config import Startup
from gputop.ui.run import run_app

class Feed(fake.FakeFeed):
    polls = 0
    def latest(self):
        self.polls += 1
        if self.polls == 3 and "native" in sys.argv:
            os.write(2, b"NVRM: Xid 79\\nsecond line\\n")
        if self.polls == 3 and "crash" in sys.argv:
            raise ValueError("a broken \\x1b[31mframe")
        return fake.frame(self.polls)

write, met = WriterThread.write, []
def write_and_meet(self, text):  # signals that come in the middle of a write
    if "Processes" in text and not met:
        met.append(True)
        with self._queue.mutex:
            for number in map(int, sys.argv[2:]):
                os.kill(os.getpid(), number)
    write(self, text)
if sys.argv[1:2] == ["meet"]:
    WriterThread.write = write_and_meet

sys.exit(run_app(Feed(), Startup(rate_hz=10)))
"""


def started(slave: int, *words: str, **env: str) -> subprocess.Popen[bytes]:
    """The program on a terminal, in a session of its own, which has no terminal that it is controlled by."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=ROOT,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"} | env,
        start_new_session=True,
    )
