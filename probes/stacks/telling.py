"""Stacks and places as the samples that tell them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from probes.code.layout import LINE_DTYPE
from probes.source import FRAMES, PLACES, Sample
from probes.stacks.native import Frame
from probes.stacks.resolver import Stack

_PLACES_A_SAMPLE = 2000


def frames_sample(rows: Iterable[tuple[int, int, tuple[Frame, ...]]], now_ns: int) -> Sample:
    """Frames by process and number."""
    told = list(rows)
    data = {
        "pid": [pid for pid, _, _ in told],
        "stack": [number for _, number, _ in told],
        "frames": [[list(frame) for frame in frames] for _, _, frames in told],
    }
    return Sample(FRAMES, now_ns, data)


def stacks_sample(stacks: Iterable[Stack], now_ns: int) -> Sample:
    """Stacks that have been found."""
    return frames_sample(((stack.pid, stack.id, stack.frames) for stack in stacks), now_ns)


def places_samples(records: list[bytes], now_ns: int, number: Callable[[int], int]) -> Iterator[Sample]:
    """Where threads were: records of the ring, of which ``number`` says under which stack each is told."""
    size = LINE_DTYPE.itemsize
    rows = np.frombuffer(b"".join(record[:size] for record in records), LINE_DTYPE)
    for start in range(0, len(rows), _PLACES_A_SAMPLE):
        part = rows[start : start + _PLACES_A_SAMPLE]
        data = {name: part[name].tolist() for name in ("time", "tid", "pid", "syscall")}
        data["argument"] = (part["argument"] & 0xFFFFFFFF).tolist()
        yield Sample(PLACES, now_ns, {**data, "stack": [number(stack) for stack in part["stack"].tolist()]})
