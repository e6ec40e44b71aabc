"""A frame as JSON: what ``--json`` prints, documented in docs/json.md ("gputop.frame/1").

Every number carries its unit in the name of its key. What cannot be known is ``null``. Names come as
they are: JSON escapes what is dangerous to a terminal.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from gputop.documents.fields import document
from gputop.engine.frame import Frame, ProcessRow, ThreadRow

MOST_THREADS: Final = 512  # of a process that are listed
_MOST_IN_ALL, _FEWEST = 4096, 8  # of all processes, and of each however many there are
_FROM_CALLS = {"events_per_second", "calls_per_second", "top_api_ns_per_second", "top_api_p99_ns"}


def frame_to_json(frame: Frame) -> dict[str, Any]:
    """The frame as an object that ``json.dumps`` takes."""
    watched = [row for row in frame.processes if row.watched]  # the screen lists others of the GPUs as well
    most = _most_threads(watched)
    made = document(replace(frame, processes=tuple(_listed(row, most) for row in watched)))
    if not frame.calls_observed:
        for row in (made, *made["processes"]):
            row |= dict.fromkeys(_FROM_CALLS & row.keys())
            for thread in row.get("threads", ()):
                thread["cuda"] = None
    return made


def _listed(row: ProcessRow, most: int) -> ProcessRow:
    """The process with at most so many threads."""
    threads = _busiest(row.threads, most)
    unlisted = len(row.threads) - len(threads)
    return replace(row, threads=tuple(threads), unlisted_threads=unlisted) if unlisted else row


def _most_threads(processes: Sequence[ProcessRow]) -> int:
    """How many of each are listed: a process may have ten thousand, and there may be many of these."""
    most = MOST_THREADS
    while most > _FEWEST and sum(min(len(row.threads), most) for row in processes) > _MOST_IN_ALL:
        most //= 2
    return most


def _busiest(threads: Sequence[ThreadRow], most: int) -> list[ThreadRow]:
    """Those that did most within the window, in their order."""
    if len(threads) <= most:
        return list(threads)
    chosen = heapq.nlargest(
        most, range(len(threads)), lambda at: (threads[at].cuda, _busy_ns(threads[at]), -at)
    )
    return [threads[at] for at in sorted(chosen)]


def _busy_ns(row: ThreadRow) -> int:
    return row.on_cpu_ns + row.runnable_ns
