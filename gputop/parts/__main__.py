"""A process that looks at parts of recordings for another one, which gives them to its standard input."""

from __future__ import annotations

import os
import pickle
import sys

from gputop.errors import GputopError


def main() -> int:
    """Writes what comes of each part to standard output; returns the exit status."""
    asked, answer = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            work, segment = pickle.load(asked)
        except EOFError:
            return 0
        try:
            result = True, work.map(segment)
        except GputopError as error:
            result = False, str(error)
        pickle.dump(result, answer, pickle.HIGHEST_PROTOCOL)
        answer.flush()
