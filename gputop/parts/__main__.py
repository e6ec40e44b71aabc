"""A process that looks at parts of recordings for another one, which gives them to its standard input."""

from __future__ import annotations

import os
import pickle
import sys
from typing import IO, Any

from gputop.errors import GputopError
from gputop.parts.mapreduce import AnyWork, ChainedWork, Segment


def look_at(work: AnyWork[Any], segment: Segment, carried: bytes, answer: IO[bytes]) -> object:
    """The result of a segment; what the next one must know is written to ``answer`` before."""
    if isinstance(work, ChainedWork):
        after, rest = work.follow(segment, pickle.loads(carried) if carried else work.begin())
        pickle.dump((True, pickle.dumps(after, pickle.HIGHEST_PROTOCOL)), answer)
        answer.flush()
        return rest()
    pickle.dump((True, b""), answer)
    answer.flush()  # else the next segment's process waits for this one's result
    return work.map(segment)


def main() -> int:
    """Writes what comes of each part to standard output; returns the exit status."""
    asked, answer = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            work, segment, carried = pickle.load(asked)
        except EOFError:
            return 0
        try:
            result = True, look_at(work, segment, carried, answer)
        except GputopError as error:
            result = False, str(error)
        pickle.dump(result, answer, pickle.HIGHEST_PROTOCOL)
        answer.flush()
