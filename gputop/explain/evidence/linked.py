"""Which kernel each call gave the GPU, in a file that holds kernels: its calls have no handles."""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.activity import GRAPH, KERNEL
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints


def kernels_given(evidence: Evidence) -> Ints:
    """For each row of ``evidence.calls`` the place of its kernel's name in the texts, plus one; 0: none."""
    calls = evidence.calls
    found = np.zeros(len(calls), np.int64)
    rows = evidence.activities.of(KERNEL, GRAPH)
    rows = rows[rows["call_tid"] >= 0]
    if not len(rows) or not len(calls):
        return found
    thread = evidence.threads.row(rows["call_tid"])
    keys = evidence.key(calls["row"], calls["begin"])
    wanted = evidence.key(np.maximum(thread, 0), rows["call_begin"])
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = (thread >= 0) & (keys[place] == wanted)
    found[place[known]] = rows["name"][known] + 1
    return found
