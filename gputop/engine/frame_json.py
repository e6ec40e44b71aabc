"""A frame as the JSON of ``--json``, documented in docs/json.md ("gputop.frame/1").

Every number has its unit in its key. Unknown values are ``null``. Names are unchanged: JSON escapes control
characters.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from gputop.documents.fields import document
from gputop.engine.frame import Frame, ProcessRow, ThreadRow

MOST_THREADS: Final = 512  # listed threads of a process
_MOST_IN_ALL, _FEWEST = 4096, 8  # of all processes together, and of each however many there are
_FROM_CALLS = {"events_per_second", "calls_per_second", "top_api_ns_per_second", "top_api_p99_ns"}


def frame_to_json(frame: Frame) -> dict[str, Any]:
    """Return the frame as an object for ``json.dumps``."""
    watched = [row for row in frame.processes if row.watched]  # the screen lists others of the GPUs as well
    most = MOST_THREADS
    while most > _FEWEST and sum(min(len(row.threads), most) for row in watched) > _MOST_IN_ALL:
        most //= 2
    made = document(replace(frame, processes=tuple(_listed(row, most) for row in watched)))
    if not frame.calls_observed:
        for row in (made, *made["processes"]):
            row |= dict.fromkeys(_FROM_CALLS & row.keys())
            for thread in row.get("threads", ()):
                thread["cuda"] = None
    return made


def _listed(row: ProcessRow, most: int) -> ProcessRow:
    """A process with at most so many threads."""
    threads = _busiest(row.threads, most)
    unlisted = len(row.threads) - len(threads)
    return replace(row, threads=tuple(threads), unlisted_threads=unlisted) if unlisted else row


def _busiest(threads: Sequence[ThreadRow], most: int) -> list[ThreadRow]:
    """The busiest threads of the window, in their order."""
    if len(threads) <= most:
        return list(threads)

    def busy(at: int) -> tuple[bool, int, int]:
        row = threads[at]
        return row.cuda, row.on_cpu_ns + row.runnable_ns, -at

    return [threads[at] for at in sorted(heapq.nlargest(most, range(len(threads)), busy))]
