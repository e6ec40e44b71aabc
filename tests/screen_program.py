"""A program that shows fake frames on a real terminal."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent


PROGRAM = """
import os, sys
sys.path.insert(0, ".")
from tests import fake_frames as fake
from gputop.ui.model.config import Asked
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

sys.exit(run_app(Feed(), Asked(rate_hz=10)))
"""
