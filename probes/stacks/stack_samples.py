"""Samples that carry stacks, places and names of kernels, and the numbers of those names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from probes.code.layout import LINE_DTYPE
from probes.source import FRAMES, PLACES, Sample
from probes.stacks.native_frames import Frame
from probes.stacks.resolver import Stack

_BIT: Final = 1 << 61  # below the bit of stacks, so that no number means both
_MASK: Final = (1 << 61) - 1
# splitmix64, of 61 bits: each step has an inverse, as the constants are odd
_MIX: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_BACK: Final = tuple(pow(one, -1, _BIT) for one in _MIX)


def kernel_number(pid: int, address: int) -> int:
    """The number under which the name of a kernel is reported, as that of a stack."""
    value = (address + pid * _MIX[0]) & _MASK
    value = (value ^ value >> 30) * _MIX[1] & _MASK
    value = (value ^ value >> 27) * _MIX[2] & _MASK
    return value ^ value >> 31 | _BIT


def kernel_address(pid: int, number: int) -> int:
    """The address, where the process is known, of which ``kernel_number`` made this number; below 2**61."""
    value = _unfolded(number & _MASK, 31) * _BACK[2] & _MASK
    value = _unfolded(value, 27) * _BACK[1] & _MASK
    return (_unfolded(value, 30) - pid * _MIX[0]) & _MASK


def _unfolded(value: int, shift: int) -> int:
    """The inverse of ``value ^ value >> shift``."""
    found = value
    while value := value >> shift:
        found ^= value
    return found


def is_kernel_number(number: int) -> bool:
    """True if a number is that of a kernel, and not of a stack of callers."""
    return number >> 61 == 1


# Stacks and places as their samples.

_PLACES_A_SAMPLE = 2000


def frames_sample(rows: Iterable[tuple[int, int, tuple[Frame, ...]]], now_ns: int) -> Sample:
    """Frames by process and number."""
    stacks = list(rows)
    data = {
        "pid": [pid for pid, _, _ in stacks],
        "stack": [number for _, number, _ in stacks],
        "frames": [[list(frame) for frame in frames] for _, _, frames in stacks],
    }
    return Sample(FRAMES, now_ns, data)


def stacks_sample(stacks: Iterable[Stack], now_ns: int) -> Sample:
    """Stacks that have been found."""
    return frames_sample(((stack.pid, stack.id, stack.frames) for stack in stacks), now_ns)


def places_samples(records: list[bytes], now_ns: int, number: Callable[[int, int], int]) -> Iterator[Sample]:
    """Places of threads: records of the ring, with the number of each one's stack in ``number``."""
    size = LINE_DTYPE.itemsize
    rows = np.frombuffer(b"".join(record[:size] for record in records), LINE_DTYPE)
    for start in range(0, len(rows), _PLACES_A_SAMPLE):
        part = rows[start : start + _PLACES_A_SAMPLE]
        data = {name: part[name].tolist() for name in ("time", "tid", "pid", "syscall")}
        data["argument"] = (part["argument"] & 0xFFFFFFFF).tolist()
        stacks = [*map(number, part["stack"].tolist(), data["pid"])]
        yield Sample(PLACES, now_ns, {**data, "stack": stacks})
