"""What a thread waits for while it is blocked, by the system call in which it left its CPU."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from probes.proc.syscalls import name
from probes.schema import NO_SYSCALL

STOPPED = NO_SYSCALL - 1  # stands where the number of a system call does


class Wait(IntEnum):
    """Kinds of waits."""

    OTHER = 0
    LOCK = 1  # futex: a mutex, a condition variable, the GIL
    POLL = 2
    READ = 3  # a pipe, an eventfd or a file; what it is needs the descriptor
    SOCKET = 4
    DISK = 5
    SLEEP = 6
    DRIVER = 7  # ioctl
    FAULT = 8  # outside of a system call: a page, or a lock of the kernel
    CHILD = 9
    MEMORY = 10  # changing the address space
    REQUEST = 11  # a connection that somebody else makes
    STOPPED = 12  # whatever it was in: a signal or a debugger stopped it


_KINDS: dict[Wait, str] = {
    Wait.LOCK: "futex futex_waitv futex_wait futex_requeue semop semtimedop",
    Wait.POLL: "poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2",
    Wait.READ: "read readv write writev splice tee vmsplice",
    Wait.SOCKET: "recvfrom recvmsg recvmmsg sendto sendmsg sendmmsg connect",
    Wait.REQUEST: "accept accept4",
    Wait.DISK: "pread64 preadv preadv2 pwrite64 pwritev pwritev2 fsync fdatasync sync_file_range sync syncfs "
    "msync readahead io_getevents io_uring_enter getdents64 copy_file_range fallocate ftruncate open openat "
    "openat2 newfstatat statx unlink unlinkat rename renameat renameat2",
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
    Wait.SOCKET: "for the network",
    Wait.DISK: "for the disk",
    Wait.SLEEP: "asleep",
    Wait.DRIVER: "in the GPU driver",
    Wait.FAULT: "for a page of memory",
    Wait.CHILD: "for a child process",
    Wait.MEMORY: "for its address space",
    Wait.REQUEST: "for a request",
    Wait.STOPPED: "until it was continued: a signal or a debugger had stopped it",
}
OWN = frozenset(
    {Wait.DISK, Wait.SLEEP, Wait.DRIVER, Wait.FAULT, Wait.MEMORY, Wait.STOPPED}
)  # nobody else's work
REPEATED = frozenset({Wait.LOCK, Wait.POLL})  # waits with a time-out that are taken up again


def wait_table(machine: str) -> npt.NDArray[np.uint8]:
    """The kind of wait for each system call number of a machine."""
    kinds = {word: kind for kind, words in _KINDS.items() for word in words.split()}
    table = np.zeros(1 << 16, np.uint8)
    for number in range(512):
        table[number] = kinds.get(name(number, machine), Wait.OTHER)
    table[NO_SYSCALL], table[STOPPED] = Wait.FAULT, Wait.STOPPED
    return table
