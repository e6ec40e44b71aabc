"""Reports the uncertainty about processes that ran before gputop, until it is over.

A thread is known from its first CUDA call, context switch or birth after gputop's start. Until then
it is not listed, so its state is not guessed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from probes.proc import procfs
from probes.source import NOTE, PROBLEM, Sample

_PAUSES = 20  # how much longer than a look the pause after it is
_RAN = " ran before gputop: "
_UNKNOWN = (
    "threads appear with their first switch or CUDA call; "
    "streams, pinned memory and device from before are unknown"
)
_SHOWN = 6  # numbers of processes


class Latecomers:
    """Processes older than gputop that have threads which no probe has seen."""

    def __init__(self) -> None:
        own = procfs.process_facts(os.getpid())
        self._own_start_ns = int(own["start_ns"]) if own else 0
        self._uncertain: dict[int, bool] = {}  # pid -> true if it was reported
        self._next_ns = 0

    def add(self, pid: int) -> None:
        """Adds a process that begins to be watched; one that gputop starts itself is no latecomer."""
        facts = procfs.process_facts(pid)
        if facts and facts["parent_pid"] != os.getpid() and facts["start_ns"] <= self._own_start_ns:
            self._uncertain.setdefault(pid, False)

    def samples(self, states: npt.NDArray[np.void], now_ns: int) -> Iterator[Sample]:
        """The samples that follow from the threads known at a mark; mostly none."""
        if not self._uncertain or now_ns < self._next_ns:
            return
        begun = time.monotonic_ns()
        known = set(states["tid"].tolist())
        for pid, reported in list(self._uncertain.items()):
            unknown = set(procfs.threads(pid)) - known
            if unknown and not reported:
                self._uncertain[pid] = True
                yield _problem(pid, now_ns, sentence(pid))
            elif not unknown:
                del self._uncertain[pid]
                if reported:
                    yield _problem(pid, now_ns, "")
                    text = f"all threads of process {pid} are known from here on"
                    yield Sample(NOTE, now_ns, {"text": text})
        # a process may have a hundred thousand threads: counting them may cost a twentieth of a CPU
        self._next_ns = now_ns + _PAUSES * (time.monotonic_ns() - begun)


def sentence(pid: int) -> str:
    """Return what is unknown of a process that ran before gputop."""
    return f"process {pid}{_RAN}its {_UNKNOWN}"


def merged(texts: Sequence[str]) -> list[str]:
    """Return problems with those of processes that ran before as one sentence, in the place of the first."""
    found, late = list(texts), [text for text in texts if is_late(text)]
    if len(late) < 2:
        return found
    pids = [text.split()[1] for text in late]
    shown = ", ".join(pids[:_SHOWN]) + (f" and {len(pids) - _SHOWN} more" if len(pids) > _SHOWN else "")
    first = found.index(late[0])
    every = f"{len(late)} processes{_RAN}their {_UNKNOWN} ({shown})"
    return [*found[:first], every, *(text for text in found[first:] if not is_late(text))]


def is_late(text: str) -> bool:
    """True for a sentence about processes that ran before gputop, a limit rather than a fault."""
    return _RAN in text


def _problem(pid: int, now_ns: int, text: str) -> Sample:
    return Sample(PROBLEM, now_ns, {"text": text, "about": f"late {pid}"})
