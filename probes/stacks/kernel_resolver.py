"""Names of kernels: the runtime launches one by the address of a host function of the same name.

nvcc makes a function of the kernel's own name in the host's code, whose address the program passes to
``cudaLaunchKernel``. Its file and its name there are looked up like those of any native
caller; so names are known for programs that ran before, too, and nothing is traced. They are reported as
stacks of one frame under a number that follows from process and address. A function in a file without
symbols has its place in the file. A handle of the driver (cuBLAS, Triton) has the name by which its program
obtained it (probes/stacks/handles.py); its file is that of the code which did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np

from probes import api
from probes.arrays import distinct
from probes.schema import CallFlag, Kind, Records
from probes.source import Sample
from probes.stacks.handles import Handles
from probes.stacks.mappings import Mappings, Moment, State
from probes.stacks.native_frames import GAP, Frame, NativeFrames, NotYet, readable
from probes.stacks.stack_samples import frames_sample, kernel_number

MOST = 1 << 16  # kernels of all processes
_A_TURN = 64  # are looked up at a mark
_A_SAMPLE = 200
_RENEWED = " (handle reused: earlier launches were of other kernels)"
_TRIES = 40  # marks, until a kernel counts as one without a name

_LAUNCHES, _OF_DRIVER = np.zeros(1 << 16, np.bool_), np.zeros(1 << 16, np.bool_)
_LAUNCHES[[op for op, row in enumerate(api.BY_OP) if row.argument == "kernel"]] = True
_OF_DRIVER[[op for op, row in enumerate(api.BY_OP) if row.layer == api.DRIVER]] = True

Kernel = tuple[int, int]  # process, address
Find = Callable[[int, int, int], Frame | None]  # of process, address and time; raises NotYet
FileOf = Callable[[int, int, int], str]  # likewise the file that is mapped there, "" where it is not known


def finder(natives: NativeFrames, state: Callable[[int], State | None]) -> Find:
    """A finder of functions by mapped files.

    Args:
        natives: Finds the functions of files.
        state: The kernel's current state of a process's mappings; None for none.
    """

    def find(pid: int, address: int, time_ns: int) -> Frame | None:
        moment = Moment(pid, time_ns, state(pid) or (0, 0))
        found = natives.frames(moment, [address], interrupted=True, under_python=False)[0]
        return None if found == GAP else found

    return find


def file_finder(mappings: Mappings, state: Callable[[int], State | None]) -> FileOf:
    """Finds the files that are mapped; the arguments are as of ``finder``."""

    def file_of(pid: int, address: int, time_ns: int) -> str:
        found = mappings.find(Moment(pid, time_ns, state(pid) or (0, 0)), address)
        return found.path.removesuffix(" (deleted)") if found is not None and found.file[1] else ""

    return file_of


@dataclass(slots=True)
class _Wanted:
    """A kernel without a name so far."""

    time_ns: int  # of its first launch
    handle: bool  # it is a handle of the driver, not an address
    tries: int = 0  # failed look-ups of its name


class Kernels:
    """Collects the kernels that processes launch, and finds their names.

    Attributes:
        unread: How many names were not found the last time since their files were still being read.

    Args:
        find: The frame at an address of a process at a time; None where it is not known.
        wait: Until files that are being read have been, no longer than so many seconds.
        file_of: The file at an address.
    """

    def __init__(
        self,
        find: Find,
        wait: Callable[[float], None] = lambda _seconds: None,
        file_of: FileOf = lambda _pid, _address, _time_ns: "",
    ) -> None:
        self._find, self._wait, self._file_of = find, wait, file_of
        self._known: set[Kernel] = set()
        self._waiting: dict[Kernel, _Wanted] = {}
        self._handles = Handles()
        self.unread = 0

    def hear(self, record: bytes) -> None:
        """A program has queried a kernel of the driver: a HANDLE_RECORD."""
        found = self._handles.hear(record)
        if (
            found is not None and found in self._known
        ):  # launched before its query was seen, or changed by now
            self._waiting.setdefault(found, _Wanted(0, handle=True))

    def notice(self, records: Records) -> None:
        """Looks for kernels that were not launched before."""
        wanted = _LAUNCHES.take(records["op"])
        if not wanted.any():
            return
        wanted &= (records["kind"] == np.uint8(Kind.CALL)) & (records["ret"] == 0)
        wanted &= (records["flags"] & np.uint16(CallFlag.NESTED | CallFlag.ABANDONED)) == 0
        pids, addresses, times, ops = (records[name][wanted] for name in ("pid", "aux", "t_end", "op"))
        for pid in distinct(pids).tolist():
            mine = np.flatnonzero(pids == pid)
            found, first = np.unique(addresses[mine], return_index=True)
            for address, row in zip(found.tolist(), first.tolist(), strict=True):
                if (pid, address) not in self._known and len(self._known) < MOST:
                    self._known.add((pid, address))
                    at = mine[row]
                    self._waiting[pid, address] = _Wanted(int(times[at]), bool(_OF_DRIVER[ops[at]]))

    def resolved(self, *, last: bool = False) -> Iterator[tuple[int, int, Frame]]:
        """(process, number, frame) of kernels whose names have been found; at the end all are tried."""
        self.unread = 0
        turn = list(self._waiting.items())
        for (pid, address), wanted in turn if last else turn[:_A_TURN]:
            del self._waiting[pid, address]
            try:
                frame = self._named(pid, address, wanted)
            except NotYet:
                self._waiting[pid, address] = wanted
                self.unread += 1
                continue
            if frame is not None:
                yield pid, kernel_number(pid, address), frame
            elif wanted.tries < _TRIES:
                wanted.tries += 1
                self._waiting[pid, address] = wanted

    def _named(self, pid: int, address: int, wanted: _Wanted) -> Frame | None:
        named = self._handles.get(pid, address)
        if named is None:
            return None if wanted.handle else self._find(pid, address, wanted.time_ns)
        file = self._file_of(pid, named.caller, named.time_ns)
        return file, 0, readable(named.name) + (_RENEWED if named.renewed else "")

    def samples(self, now_ns: int, until: float | None = None) -> Iterator[Sample]:
        """The same as samples.

        Args:
            now_ns: Their time.
            until: At the end: so long files may be read, s of the monotonic clock.
        """
        found = list(self.resolved(last=until is not None))
        while until is not None and self._waiting and (left := until - time.monotonic()) > 0:
            self._wait(left)
            found += self.resolved(last=True)
        for start in range(0, len(found), _A_SAMPLE):
            part = found[start : start + _A_SAMPLE]
            yield frames_sample(((pid, number, (frame,)) for pid, number, frame in part), now_ns)

    @property
    def processes(self) -> set[int]:
        return {pid for pid, _ in self._known} | self._handles.processes

    def forget(self, pids: Collection[int]) -> None:
        """Drops the kernels of processes that have ended."""
        self._known = {kernel for kernel in self._known if kernel[0] not in pids}
        self._waiting = {kernel: one for kernel, one in self._waiting.items() if kernel[0] not in pids}
        self._handles.forget(pids)
