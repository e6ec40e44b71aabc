"""What each call gave the GPU, in a file that holds kernels: its calls have no handles."""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.activity import GRAPH, KERNEL, ON_GPU
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import FOREVER, Ints
from probes.activities import Table


def kernels_given(evidence: Evidence) -> Ints:
    """For each row of ``evidence.calls`` the place of its kernel's name in the texts, plus one; 0: none."""
    found = np.zeros(len(evidence.calls), np.int64)
    rows, call = _linked(evidence, KERNEL, GRAPH)
    found[call] = rows["name"] + 1
    return found


def kernel_times(evidence: Evidence) -> Ints:
    """For each row of ``evidence.calls`` how long the kernel ran that it launched; -1: not known."""
    found = np.full(len(evidence.calls), -1, np.int64)
    rows, call = _linked(evidence, KERNEL)
    found[call] = 0
    np.add.at(found, call, rows["end"] - rows["begin"])
    return found


def work_ended(evidence: Evidence, calls: Ints) -> Ints:
    """When what each of these calls gave the GPU had ended by the GPU's own clock; FOREVER: not known."""
    ends = np.full(len(evidence.calls), -1, np.int64)
    rows, call = _linked(evidence, *ON_GPU)
    np.maximum.at(ends, call, rows["end"])
    return np.where(ends[calls] >= 0, ends[calls], FOREVER)


def _linked(evidence: Evidence, *what: str) -> tuple[Table, Ints]:
    """(what the GPU did, the row of the call that gave it), where that is in the file."""
    calls = evidence.calls
    rows = evidence.activities.of(*what)
    rows = rows[rows["call_tid"] >= 0]
    if not len(rows) or not len(calls):
        return rows[:0], np.zeros(0, np.int64)
    thread = evidence.threads.row(rows["call_tid"])
    keys = evidence.key(calls["row"], calls["begin"])
    wanted = evidence.key(np.maximum(thread, 0), rows["call_begin"])
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = (thread >= 0) & (keys[place] == wanted)
    return rows[known], place[known]
