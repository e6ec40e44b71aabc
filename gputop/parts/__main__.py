"""A worker process of ``gputop.parts.process_pool``: work on standard input, results on standard output."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any

from gputop.errors import GputopError


def main() -> int:
    """Write the result of each piece of work to standard output; return the exit status."""
    work, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(fine: bool, more: bool, result: Any) -> None:
        pickle.dump((fine, more, result), results, pickle.HIGHEST_PROTOCOL)
        results.flush()

    while True:
        try:
            function, arguments = pickle.load(work)
        except EOFError:
            return 0
        try:
            result = function(*arguments)
            if isinstance(result, Iterator):
                send(True, True, next(result))
                result = next(result)
        except GputopError as error:
            send(False, False, str(error))
        else:
            send(True, False, result)
