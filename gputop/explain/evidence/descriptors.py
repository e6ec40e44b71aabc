"""What the file descriptors are that threads blocked on, as samples of kind ``files`` tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gputop.engine.apart import apart
from gputop.explain.evidence.ranges import Ints
from probes.proc.syscalls import of_files
from probes.samples import FilesData

if TYPE_CHECKING:
    from gputop.explain.evidence.evidence import Columns, Table

UNKNOWN = 0  # the number of what is not known
_MOST = 65_536  # names, and descriptors; a program that opens more files has the later ones unnamed


class Descriptors:
    """Numbers what is told of descriptors; the number of a name never changes.

    Args:
        machine: Whose numbers of system calls the slices have, as ``uname -m`` says.

    Attributes:
        names: What a number stands for: ``socket``, ``pipe``, ``file:PATH``, ``device:PATH``, ``anon:NAME``
            (see ``probes.proc.open_files.describe``); ``""`` for 0.
    """

    def __init__(self, machine: str) -> None:
        self.names: list[str] = [""]
        self._numbers: dict[str, int] = {"": UNKNOWN}
        self._now: dict[int, int] = {}  # process << 32 | descriptor -> number
        self._takes = of_files(machine)

    def copy(self) -> Descriptors:
        """One that goes on by itself."""
        return apart(self, shared=("_takes",))  # never changed

    def take(self, data: FilesData) -> None:
        """Takes the data of a sample in; what a descriptor was before is forgotten."""
        for pid, descriptor, what in zip(
            data.get("pid", ()), data.get("fd", ()), data.get("what", ()), strict=False
        ):
            key = int(pid) << 32 | int(descriptor)
            self._now.pop(key, None)
            if len(self._now) >= _MOST:
                del self._now[next(iter(self._now))]
            self._now[key] = self._number(str(what))

    def _number(self, what: str) -> int:
        number = self._numbers.get(what)
        if number is None and len(self.names) < _MOST:
            number = self._numbers[what] = len(self.names)
            self.names.append(what)
        return UNKNOWN if number is None else number

    def tell(self, slices: Columns | Table) -> None:
        """Fills the column ``file`` of stays off the CPU or of samples in, as reported up to now."""
        slices["file"][:] = self.of(slices)

    def of(self, slices: Columns | Table) -> npt.NDArray[np.int32]:
        """What the system call of each row was given, by number, as reported up to now; else ``UNKNOWN``."""
        files = np.zeros(len(slices), np.int32)
        if not self._now:
            return files
        rows = np.flatnonzero(self._takes.take(slices["syscall"]))
        keys = slices["pid"][rows].astype(np.int64) << 32 | slices["descriptor"][rows]
        distinct, place = np.unique(keys, return_inverse=True)
        known = np.array([self._now.get(key, UNKNOWN) for key in distinct.tolist()], np.int32)
        if len(rows):
            files[rows] = known[place]
        return files


def numbers_of(names: Sequence[str], wanted: str) -> Ints:
    """The numbers that stand for a name; none or one."""
    return np.array([number for number, what in enumerate(names) if what == wanted], np.int64)
