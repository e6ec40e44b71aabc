"""The data of headers and marks: facts of both sources, open calls at a mark, cut lists."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from probes import schema
from probes.files import maps
from probes.nvml.nvml import NvmlSampler
from probes.observe.plan import LivePlan
from probes.proc import procfs
from probes.schema import OffFlag
from probes.source import NOTE, OPEN, Sample


def header_facts(plan: LivePlan, start_ns: int, sampler: NvmlSampler | None) -> dict[str, Any]:
    """The facts in the headers of both sources."""
    return {
        "machine": procfs.machine_facts(),
        "clock": procfs.clock_facts(),
        "start_ns": start_ns,
        "rate_hz": plan.rate_hz,
        "pids": list(plan.pids) if plan.pids is not None else None,
        "driver": sampler.driver if sampler is not None else "",
    }


def mark_data(number: int, mark_ns: int, own: procfs.OwnUse, lost: Iterable[int]) -> dict[str, Any]:
    """The data of both sources' marks; ``lost`` are the counters of ``LOSS_KINDS``."""
    percent, rss = own.sample()
    return {
        "number": number,
        "wall_ns": time.time_ns() - (time.monotonic_ns() - mark_ns),
        "lost": {name: int(count) for name, count in zip(schema.LOSS_KINDS, lost, strict=True)},
        "own_cpu_percent": round(percent, 2),
        "own_rss_bytes": rss,
    }


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
