"""Launches by kernel: counted by process and handle, named where the recording tells a name.

A launch of the runtime's names a function of the host's code, which is called like its kernel
(probes/stacks/kernels.py); a handle of the driver's has no name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputop.engine.facts import Facts
from probes import api
from probes.schema import CallFlag, Records
from probes.stacks.kernels import kernel_number

Counts = dict[tuple[int, int], int]  # (process, handle) -> launches
NAMELESS = "handles of the driver, without a name"
MOST = 1 << 16  # kernels; what comes beyond is counted under handle 0
_LIBRARIES = (
    ("torch", ("libtorch", "libc10", "libaten")),
    ("cuBLAS", ("libcublas",)),
    ("cuDNN", ("libcudnn",)),
    ("NCCL", ("libnccl",)),
    ("cuFFT", ("libcufft",)),
    ("cuSPARSE", ("libcusparse",)),
)


def library_of(file: str) -> str:
    """Whose kernels a file has: ``torch``, ``cuBLAS``, …, else the file's name."""
    base = file.rpartition("/")[2]
    return next((name for name, starts in _LIBRARIES if base.startswith(starts)), base)


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The launches of one kernel; ``name`` is "" where it is not known, and ``file`` with it."""

    name: str
    file: str
    handle: int
    launches: int

    @property
    def library(self) -> str:
        """Whose kernel it is: ``torch``, ``cuBLAS``, …, else its file; "" where that is not known."""
        return library_of(self.file)

    @property
    def shown(self) -> str:
        """The name, or the handle of one without."""
        return self.name or f"handle {self.handle:#x}"


class KernelCounts:
    """Counts launches that succeeded, outermost ones only."""

    def __init__(self) -> None:
        """Nothing was launched."""
        self.counts: Counts = {}
        self._launches = launching([row.name for row in api.BY_OP])

    def name(self, names: Iterable[str]) -> None:
        """What the functions of the session are called, by their numbers."""
        self._launches = launching(names)

    def add(self, calls: Records) -> None:
        """Takes CALL records in."""
        wanted = self._launches.take(calls["op"], mode="clip") & (calls["ret"] == 0)
        wanted &= (calls["flags"] & np.uint16(CallFlag.NESTED | CallFlag.ABANDONED)) == 0
        if not wanted.any():
            return
        pids, handles = calls["pid"][wanted], calls["aux"][wanted]
        for pid in np.unique(pids).tolist():
            found, count = np.unique(handles[pids == pid], return_counts=True)
            add(self.counts, {(pid, one): n for one, n in zip(found.tolist(), count.tolist(), strict=True)})

    def take(self) -> Counts:
        """What was counted since the last time."""
        counts, self.counts = self.counts, {}
        return counts


class KernelWindow:
    """The launches of the last ticks."""

    def __init__(self) -> None:
        """Start with an open tick."""
        self.now = KernelCounts()
        self._ticks: deque[Counts] = deque()

    def close_tick(self, keep: int) -> None:
        """Closes the open tick and drops all but the newest ``keep`` ticks."""
        self._ticks.append(self.now.take())
        while len(self._ticks) > keep:
            self._ticks.popleft()

    def counts(self) -> Counts:
        """Over the ticks that are kept."""
        sums: Counts = {}
        for tick in self._ticks:
            add(sums, tick)
        return sums


def add(sums: Counts, more: Counts) -> None:
    """Adds to counts."""
    for (pid, handle), count in more.items():
        key = (pid, handle) if (pid, handle) in sums or len(sums) < MOST else (pid, 0)
        sums[key] = sums.get(key, 0) + count


def kernel_rows(counts: Counts, facts: Facts) -> dict[int, tuple[KernelRow, ...]]:
    """pid -> its kernels, most launches first; only of processes of which some kernel has a name."""
    found: dict[int, list[KernelRow]] = {}
    for (pid, handle), launches in counts.items():
        frame = next(iter(facts.stacks.frames(kernel_number(pid, handle))), None)
        name, file = (frame.function, frame.file) if frame is not None else ("", "")
        found.setdefault(pid, []).append(KernelRow(name, file, handle, launches))
    return {
        pid: tuple(sorted(rows, key=lambda row: (-row.launches, row.shown, row.handle)))
        for pid, rows in found.items()
        if any(row.name for row in rows)
    }


def folded(name: str) -> str:
    """Without result, arguments and what stands between angle brackets: ``at::native::reduce_kernel<…>``."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    out: list[str] = []
    depth = 0
    for letter in name:
        if letter == "(" and not depth:
            break
        if letter == "<":
            depth += 1
            if depth == 1:
                out.append("<…>")
        elif letter == ">" and depth:
            depth -= 1
        elif not depth:
            out.append(letter)
    return "".join(out)


def by_folded_name(rows: Sequence[KernelRow]) -> list[tuple[str, str, int, int]]:
    """(folded name, library, launches, kernels) of kernels that differ in templates only, most first."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        key = folded(row.name) if row.name else NAMELESS, row.library
        before = found.get(key, (0, 0))
        found[key] = before[0] + row.launches, before[1] + 1
    return sorted(((*key, *one) for key, one in found.items()), key=lambda row: (-row[2], row[0]))


def launching(names: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which functions launch a kernel that they name."""
    known = [name in api.OP_OF and api.BY_OP[api.OP_OF[name]].argument == "kernel" for name in names]
    return np.array([*known, False], np.bool_)
