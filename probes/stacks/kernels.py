"""Names of kernels: the runtime launches one by the address of a host function that is called like it.

nvcc makes a function of the kernel's own name in the host's code, whose address the program gives to
``cudaLaunchKernel``. Which file that is in, and what it is called there, is asked like that of any native
caller; so names are known for programs that ran before, too, and nothing is traced for it. They are told as
stacks of one frame under a number that follows from process and address. A handle of the driver's (cuBLAS,
Triton) has no name here, nor has a function of a file without symbols: of that its place in the file is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from probes import api
from probes.schema import CallFlag, Kind, Records
from probes.source import Sample
from probes.stacks.mappings import Moment, State
from probes.stacks.native import GAP, Frame, NativeFrames, NotYet
from probes.stacks.telling import frames_sample

_BIT: Final = 1 << 61  # below the bit of stacks, so that no number means both
_MASK: Final = (1 << 61) - 1
# splitmix64, of 61 bits: each step can be taken back, as the constants are odd
_MIX: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_BACK: Final = tuple(pow(one, -1, _BIT) for one in _MIX)
MOST = 1 << 16  # kernels of all processes
_A_TURN = 64  # are looked up at a mark
_A_SAMPLE = 200
_LAST_S = 1.0  # at the end
_TRIES = 40  # marks, until a kernel counts as one without a name

_LAUNCHES = np.zeros(1 << 16, np.bool_)
_LAUNCHES[
    [op for op, row in enumerate(api.BY_OP) if row.argument == "kernel" and row.layer == api.RUNTIME]
] = True

Kernel = tuple[int, int]  # process, address
Find = Callable[[int, int, int], Frame | None]  # of process, address and time; raises NotYet


def kernel_number(pid: int, address: int) -> int:
    """The number under which the name of a kernel is told, as that of a stack."""
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
    """What ``value ^ value >> shift`` was made of."""
    found = value
    while value := value >> shift:
        found ^= value
    return found


def is_kernel_number(number: int) -> bool:
    """Whether a number is that of a kernel, and not of a stack of callers."""
    return number >> 61 == 1


def finder(natives: NativeFrames, state: Callable[[int], State | None]) -> Find:
    """Finds functions by what is mapped.

    Args:
        natives: Knows the functions of files.
        state: What the kernel says of a process's mappings now; None when it says nothing.
    """

    def find(pid: int, address: int, time_ns: int) -> Frame | None:
        moment = Moment(pid, time_ns, state(pid) or (0, 0))
        found = natives.frames(moment, [address], interrupted=True, under_python=False)[0]
        return None if found == GAP else found

    return find


class Kernels:
    """Collects the kernels that processes launch, and finds their names.

    Args:
        find: The frame at an address of a process at a time; None where it is not known.
        wait: Until files that are being read have been, no longer than so many seconds.
    """

    def __init__(self, find: Find, wait: Callable[[float], None] = lambda _seconds: None) -> None:
        self._find, self._wait = find, wait
        self._known: set[Kernel] = set()
        self._waiting: dict[Kernel, tuple[int, int]] = {}  # time of its first launch, tries

    def notice(self, records: Records) -> None:
        """Looks for kernels that were not launched before."""
        wanted = _LAUNCHES.take(records["op"])
        if not wanted.any():
            return
        wanted &= (records["kind"] == np.uint8(Kind.CALL)) & (records["ret"] == 0)
        wanted &= (records["flags"] & np.uint16(CallFlag.NESTED | CallFlag.ABANDONED)) == 0
        pids, addresses, times = (records[name][wanted] for name in ("pid", "aux", "t_end"))
        for pid in np.unique(pids).tolist():
            mine = np.flatnonzero(pids == pid)
            found, first = np.unique(addresses[mine], return_index=True)
            for address, row in zip(found.tolist(), first.tolist(), strict=True):
                if (pid, address) not in self._known and len(self._known) < MOST:
                    self._known.add((pid, address))
                    self._waiting[pid, address] = int(times[mine[row]]), 0

    def tell(self, *, last: bool = False) -> Iterator[tuple[int, int, Frame]]:
        """(process, number, frame) of those whose names have been found; at the end all are tried."""
        turn = list(self._waiting.items())
        for (pid, address), (time_ns, tries) in turn if last else turn[:_A_TURN]:
            del self._waiting[pid, address]
            try:
                frame = self._find(pid, address, time_ns)
            except NotYet:
                self._waiting[pid, address] = time_ns, tries
                continue
            if frame is not None:
                yield pid, kernel_number(pid, address), frame
            elif tries < _TRIES:
                self._waiting[pid, address] = time_ns, tries + 1

    def samples(self, now_ns: int, *, last: bool = False) -> Iterator[Sample]:
        """The same as samples."""
        found = list(self.tell(last=last))
        until = time.monotonic() + (_LAST_S if last else 0)  # by the wall: files may never be read
        while self._waiting and (left := until - time.monotonic()) > 0:
            self._wait(left)
            found += self.tell(last=True)
        for start in range(0, len(found), _A_SAMPLE):
            part = found[start : start + _A_SAMPLE]
            yield frames_sample(((pid, number, (frame,)) for pid, number, frame in part), now_ns)

    def forget(self, pid: int) -> None:
        """Drops what is kept of a process that has ended."""
        self._known = {kernel for kernel in self._known if kernel[0] != pid}
        self._waiting = {kernel: one for kernel, one in self._waiting.items() if kernel[0] != pid}
