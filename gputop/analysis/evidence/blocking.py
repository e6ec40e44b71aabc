"""The kind of wait of a blocked thread, by its system call and the file descriptor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.columns import Ints
from gputop.engine.fork_state import apart
from probes.proc.syscalls import machine_of, name, of_files
from probes.samples import FilesData
from probes.schema import NO_SYSCALL, OffFlag

if TYPE_CHECKING:
    from gputop.analysis.evidence.evidence import Columns, Table

UNKNOWN = 0  # the number of an unknown file
_MOST = 65_536  # names, and descriptors; a program that opens more files has the later ones unnamed


class Descriptors:
    """Numbers the files of descriptors; the number of a name never changes.

    Args:
        machine: The architecture of the system call numbers, as by ``uname -m``.
    """

    def __init__(self, machine: str) -> None:
        # names by number: ``socket``, ``pipe``, ``file:PATH``, ``device:PATH``, ``anon:NAME`` (see
        # ``probes.proc.open_files.describe``); ``""`` for 0
        self.names: list[str] = [""]
        self._numbers: dict[str, int] = {"": UNKNOWN}
        self._now: dict[int, int] = {}  # process << 32 | descriptor -> number
        self._of_files = of_files(machine)

    def copy(self) -> Descriptors:
        """Return a fork of the state."""
        return apart(self, shared=("_of_files",))  # never changed

    def consume(self, data: FilesData) -> None:
        """Consume the data of a sample; a descriptor's former file is forgotten."""
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

    def fill(self, slices: Columns | Table) -> None:
        """Fill in the column ``file`` of intervals off the CPU or of samples, as reported up to now."""
        slices["file"][:] = self.of(slices)

    def of(self, slices: Columns | Table) -> npt.NDArray[np.int32]:
        """Return the file of each row's system call, by number, as reported up to now; else ``UNKNOWN``."""
        files = np.zeros(len(slices), np.int32)
        if not self._now:
            return files
        rows = np.flatnonzero(self._of_files.take(slices["syscall"]))
        keys = slices["pid"][rows].astype(np.int64) << 32 | slices["descriptor"][rows]
        distinct, place = np.unique(keys, return_inverse=True)
        known = np.array([self._now.get(key, UNKNOWN) for key in distinct.tolist()], np.int32)
        if len(rows):
            files[rows] = known[place]
        return files


def numbers_of(names: Sequence[str], wanted: str) -> Ints:
    """The numbers that stand for a name; none or one."""
    return np.array([number for number, what in enumerate(names) if what == wanted], np.int64)


STOPPED = NO_SYSCALL - 1  # in place of the number of a system call


class Wait(IntEnum):
    """Kinds of waits."""

    OTHER = 0
    LOCK = 1  # futex: a mutex, a condition variable, the GIL
    POLL = 2
    READ = 3  # a pipe, an eventfd, a file: the descriptor is not known, or no wait for a disk was seen
    SOCKET = 4
    DISK = 5
    SLEEP = 6
    DRIVER = 7  # ioctl
    FAULT = 8  # outside of a system call: a page, or a lock of the kernel
    CHILD = 9
    MEMORY = 10  # changing the address space
    REQUEST = 11  # a connection by a client
    DATA = 12  # of a pipe, an eventfd or a terminal: the work of others
    STOPPED = 13  # anywhere: a signal or a debugger stopped it
    YIELD = 14  # it gave its CPU away, and is ready to run


_KINDS: dict[Wait, str] = {
    Wait.LOCK: "futex futex_waitv futex_wait futex_requeue semop semtimedop",
    Wait.POLL: "poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2",
    Wait.READ: "read readv write writev splice tee vmsplice",
    Wait.SOCKET: "recvfrom recvmsg recvmmsg sendto sendmsg sendmmsg connect",
    Wait.REQUEST: "accept accept4",
    Wait.DISK: "pread64 preadv preadv2 pwrite64 pwritev pwritev2 fsync fdatasync sync_file_range sync syncfs "
    "msync readahead io_getevents io_uring_enter getdents64 copy_file_range fallocate ftruncate open openat "
    "openat2 newfstatat statx unlink unlinkat rename renameat renameat2",
    Wait.YIELD: "sched_yield",
    Wait.SLEEP: "nanosleep clock_nanosleep pause rt_sigtimedwait rt_sigsuspend",
    Wait.DRIVER: "ioctl",
    Wait.CHILD: "wait4 waitid",
    Wait.MEMORY: "mmap munmap mprotect mremap madvise brk mlock mlock2 munlock mbind migrate_pages "
    "move_pages",
}
WORDS: dict[Wait, str] = {
    Wait.OTHER: "in the kernel",
    Wait.LOCK: "for a lock",
    Wait.POLL: "for an event",
    Wait.READ: "for data",
    Wait.SOCKET: "for a socket",
    Wait.DISK: "for the disk",
    Wait.SLEEP: "in a sleep",
    Wait.DRIVER: "in the GPU driver",
    Wait.FAULT: "for a page fault",
    Wait.CHILD: "for a child process",
    Wait.MEMORY: "in a memory call (mmap, munmap, brk)",
    Wait.REQUEST: "for a request",
    Wait.DATA: "for data",
    Wait.STOPPED: "until it was continued: a signal or a debugger had stopped it",
    Wait.YIELD: "for a CPU after sched_yield",
}
# waits for no other thread's work
OWN = frozenset({Wait.DISK, Wait.SLEEP, Wait.DRIVER, Wait.FAULT, Wait.MEMORY, Wait.STOPPED})
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
REPEATED = frozenset({Wait.LOCK, Wait.POLL})  # waits with a time-out that are resumed


def kinds_of(slices: Columns, machine: str, names: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return the kind of each slice's wait.

    The descriptor of a ``read`` or ``write`` decides where it is known: a socket is the network. A file is
    the disk if the kernel marked the thread as waiting for I/O or an interrupt ended the sleep; else another
    thread may have ended it (a file of FUSE, a page that is being read already), and the chain goes on there.

    Args:
        slices: Intervals off the CPU.
        machine: The architecture of their system call numbers.
        names: Names of the numbers in the column ``file``.
    """
    kinds = _wait_table(machine)[slices["syscall"]]
    reads = np.flatnonzero((kinds == Wait.READ) & (slices["file"] != UNKNOWN))
    if len(reads):
        named = np.array([_of_descriptor(name) for name in names], np.uint8)[slices["file"][reads]]
        by_disk = (slices["flags"][reads] & (OffFlag.IOWAIT | OffFlag.WAKER_IRQ)) != 0
        kinds[reads] = np.where((named == Wait.DISK) & ~by_disk, Wait.READ, named)
    return kinds


def _of_descriptor(name: str) -> Wait:
    kind, _, rest = name.partition(":")
    if kind == "device" and not rest.startswith(_TERMINALS):
        return Wait.READ
    if name == "anon:timerfd":
        return Wait.SLEEP
    return {"": Wait.READ, "socket": Wait.SOCKET, "file": Wait.DISK}.get(kind, Wait.DATA)


def is_yield(syscalls: npt.NDArray[np.uint16], header: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Return the system calls that yield the CPU."""
    yields: npt.NDArray[np.bool_] = _wait_table(machine_of(header))[syscalls] == Wait.YIELD
    return yields


@cache
def _wait_table(machine: str) -> npt.NDArray[np.uint8]:
    """Return the kind of wait for each system call number of a machine; read-only."""
    kinds = {word: kind for kind, words in _KINDS.items() for word in words.split()}
    table = np.zeros(1 << 16, np.uint8)
    table[:512] = [kinds.get(name(number, machine), Wait.OTHER) for number in range(512)]
    table[NO_SYSCALL], table[STOPPED] = Wait.FAULT, Wait.STOPPED
    table.flags.writeable = False
    return table
