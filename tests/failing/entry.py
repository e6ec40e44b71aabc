"""Runs gputop, with the preloaded library awake from its first line on.

What fails before that, while the interpreter starts, is not gputop's to answer for.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from gputop.commands.cli import run  # noqa: E402

if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD")  # what gputop starts is left alone
    with suppress(FileNotFoundError):
        os.open(os.environ["FAILING_MARKER"], os.O_RDONLY)
    sys.exit(run(sys.argv[1:]))
