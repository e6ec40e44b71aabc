"""What a mark of the live source tells beside the records: what is open, and which lists were cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from probes import schema
from probes.files import maps
from probes.schema import OffFlag
from probes.source import NOTE, OPEN, Sample


def cut_lists(mark_ns: int) -> Iterator[Sample]:
    """Of processes that have mapped too much to be read whole."""
    for pid in maps.cut():
        text = (
            f"process {pid} has mapped so many files, or files with so long paths, that its list was read in "
            "part: libraries and functions of it may be unknown"
        )
        yield Sample(NOTE, mark_ns, {"text": text})


def open_sample(states: npt.NDArray[np.void], mark_ns: int) -> Sample:
    """All watched threads at the mark: since when they are off their CPU, which calls are open."""
    outer = states["calls"][:, 0]
    in_call = states["depth"] > 0
    throttled = states["off_flags"] & OffFlag.THROTTLED != 0
    off = states["off_since"] > 0
    data = {
        "pid": states["pid"].tolist(),
        "tid": states["tid"].tolist(),
        "off_since": states["off_since"].tolist(),
        "queued_since": np.where(throttled, 0, states["queued_since"]).tolist(),
        "queue_cpu": states["queue_cpu"].tolist(),
        "syscall": np.where(off, states["syscall"], schema.NO_SYSCALL).tolist(),
        "argument": np.where(off, states["argument"], 0).tolist(),
        "flags": np.where(off, states["off_flags"] | states["waker_flags"], 0).tolist(),
        "op": np.where(in_call, outer["op"].astype(np.int64), -1).tolist(),
        "call_since": np.where(in_call, outer["start"], 0).tolist(),
    }
    return Sample(OPEN, mark_ns, data)
