"""Confines a process before it touches files that others may have made, libraries too.

Everything here is for a fresh child and for ever. It needs nothing but Python, so that a
child which has loaded nothing yet can use it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NoReturn

from probes.process.realtime import readable
from probes.process.syscall_numbers import numbers

NOBODY = 65534
FAILED = 125  # status of ``run`` where the work raised, or could not be confined
TIMED_OUT = 124

# linux/prctl.h
_DUMPABLE, _SECCOMP, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS, _HAS_NO_NEW_PRIVS = 4, 22, 24, 36, 38, 39
# linux/sched.h: mounts, names of the machine, IPC, processes, network
_NAMESPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x20000000 | 0x40000000
_REC, _PRIVATE = 0x4000, 0x40000  # linux/mount.h
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000  # the number is one for all architectures
_READ_ONLY, _NO_SUID, _NO_DEVICES = 1, 2, 4
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
# linux/audit.h; linux/seccomp.h; linux/filter.h
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_FILTER, _ALLOW, _REFUSE, _KILL = 2, 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_LOAD, _EQUAL, _NOT_LESS, _RETURN = 0x20, 0x15, 0x35, 0x06
_X32 = 0x40000000

# Enough to load a library and to call a function that only computes. No new process, program, connection or
# device, and no signal to anybody. (The last two are the kernel's own, behind a probe.)
_LOADING = """
    read pread64 readv write writev close open openat fstat stat lstat newfstatat statx lseek fcntl access
    faccessat faccessat2 readlink readlinkat getcwd getdents getdents64 statfs fstatfs mmap mprotect munmap
    mremap madvise brk mincore futex nanosleep clock_nanosleep sched_yield exit exit_group restart_syscall
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack clock_gettime clock_getres gettimeofday time times
    getpid getppid gettid getuid geteuid getgid getegid uname sysinfo getrusage getrlimit sched_getaffinity
    getcpu arch_prctl set_tid_address set_robust_list rseq getrandom membarrier uretprobe uprobe
"""
LOADING = frozenset(_LOADING.split())


class Refused(Enum):
    """The effect of a forbidden system call."""

    FAILS = _REFUSE | errno.EPERM  # the program may go on without it
    UNKNOWN = _REFUSE | errno.ENOSYS  # as of an older kernel: C libraries then go another way
    KILLS = _KILL


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources of a process."""

    memory_bytes: int = 2 << 30  # address space
    cpu_s: int = 10  # seconds of CPU, after which it is killed
    files: int = 64  # open files
    file_bytes: int = 0  # length of a file it writes; pipes do not count


def confine(limits: Limits, allowed: Iterable[str], *, refused: Refused = Refused.FAILS) -> None:
    """Drops everything that this process does not need: all of the below but the namespaces.

    Raises:
        OSError: A part of it failed; the process must not go on.
    """
    limit(limits)
    keep_within(0)
    if os.geteuid() == 0:
        become_nobody()
    drop_capabilities()
    forbid_new_rights()
    hide_memory()
    allow_only(allowed, refused=refused)


def limit(limits: Limits) -> None:
    """Sets hard limits, no higher than those that hold already. No core is dumped."""
    for what, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_NOFILE, limits.files),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        held = resource.getrlimit(what)[1]
        value = most if held == resource.RLIM_INFINITY else min(most, held)
        resource.setrlimit(what, (value, value))


def keep_within(capabilities: int) -> None:
    """Limits the bounding set to a mask: no program that is executed later has any other capability.

    Raises:
        OSError: Root may not do this, and may still get new rights by a program.
    """
    for capability in range(_MOST_CAPABILITIES):
        if capabilities >> capability & 1:
            continue
        try:
            prctl(_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL:  # the kernel has no more of them
                return
            if os.geteuid() == 0 and not gets_no_new_rights():
                raise
            return  # without the right to do this there are no new rights after forbid_new_rights


def become_nobody() -> None:
    """All user and group ids become nobody's, and there are no other groups."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def drop_capabilities() -> None:
    """Drops the permitted, effective and inheritable capabilities, and with them the ambient ones."""
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION, 0))
    _checked(_libc().capset(header, ctypes.create_string_buffer(bytes(24))))


def forbid_new_rights() -> None:
    """From now on no program that is executed has more rights than this process."""
    prctl(_NO_NEW_PRIVS, 1)


def gets_no_new_rights() -> bool:
    """True if ``forbid_new_rights`` holds for this thread already."""
    return bool(_libc().prctl(ctypes.c_int(_HAS_NO_NEW_PRIVS), *map(ctypes.c_ulong, (0, 0, 0, 0))) == 1)


def hide_memory() -> None:
    """Other processes of the same user may not look into this one, nor trace it."""
    prctl(_DUMPABLE, 0)


def leave_namespaces() -> None:
    """Leaves the machine's namespaces, as root only; the next child is process 1 of its own.

    In the new one there is no network, no other process is seen, and all file systems are read-only, without
    devices.

    Raises:
        OSError: The kernel refused.
    """
    _checked(_libc().unshare(_NAMESPACES))
    _checked(_libc().mount(b"none", b"/", None, ctypes.c_ulong(_REC | _PRIVATE), None))
    attributes = struct.pack("4Q", _READ_ONLY | _NO_SUID | _NO_DEVICES, 0, 0, 0)
    done = _libc().syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(b"/"),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.create_string_buffer(attributes),
        ctypes.c_size_t(len(attributes)),
    )
    if done and ctypes.get_errno() != errno.ENOSYS:  # before Linux 5.12
        _checked(done)


def allow_only(allowed: Iterable[str], *, refused: Refused = Refused.FAILS) -> None:
    """Installs a filter: no system call but the named ones takes place any more.

    Args:
        allowed: Names; those that this architecture does not have are passed over.
        refused: The effect of any other call, and of those of another architecture.

    Raises:
        OSError: The kernel has no filters, or this is neither x86-64 nor arm64.
    """
    _install(prepared(frozenset(allowed), refused))


def forbid(names: Iterable[str]) -> None:
    """Installs a filter on this thread and those that it starts: these system calls fail with EPERM for ever.

    Args:
        names: Those that this architecture does not have are passed over. Calls of another one fail, too.

    Raises:
        OSError: As ``allow_only``.
    """
    machine = _known_machine()
    rules = filter_of(numbers(names, machine), machine, Refused.FAILS, but=True)
    _install(b"".join(struct.pack("HBBI", *rule) for rule in rules))


def _install(content: bytes) -> None:
    code = ctypes.create_string_buffer(content)
    program = ctypes.create_string_buffer(struct.pack("HP", len(content) // 8, ctypes.addressof(code)))
    forbid_new_rights()  # without it only root could install a filter
    prctl(_SECCOMP, _FILTER, ctypes.addressof(program))


@cache
def prepared(allowed: frozenset[str], refused: Refused) -> bytes:
    """The filter of ``allow_only`` in the kernel's form; made once, also for children. Raises OSError."""
    machine = _known_machine()
    rules = filter_of(numbers(allowed, machine), machine, refused)
    return b"".join(struct.pack("HBBI", *rule) for rule in rules)


def _known_machine() -> str:
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    return machine


def filter_of(
    named: Collection[int], machine: str, refused: Refused, *, but: bool = False
) -> list[tuple[int, int, int, int]]:
    """The filter as classic BPF: code, jump if true, jump if false, operand.

    Args:
        named: Numbers of system calls.
        machine: As of ``uname -m``.
        refused: The effect of a forbidden call.
        but: All others than these are allowed, in place of these alone.
    """
    these, others = (refused.value, _ALLOW) if but else (_ALLOW, refused.value)
    rules = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, refused.value),  # 32-bit calls, which have other numbers
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":  # the x32 numbers are the same calls again
        rules += [(_NOT_LESS, 0, 1, _X32), (_RETURN, 0, 0, refused.value)]
    for number in named:
        rules += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, these)]
    return [*rules, (_RETURN, 0, 0, others)]


def run(
    work: Callable[[], int],
    limits: Limits,
    allowed: Iterable[str],
    seconds: float,
    *,
    refused: Refused = Refused.FAILS,
) -> int:
    """Does some work in a confined child; nothing that it starts outlives this call.

    As root the child has namespaces of its own, where this root may make them.

    To be called in a process with one thread that does nothing else: it moves into the namespaces as well.

    Args:
        work: The work; its result is the exit status.
        limits: Its resources.
        allowed: Its system calls, by name.
        seconds: Its time.
        refused: The effect of any other system call.

    Returns:
        The exit status, minus the signal's number where one ended it, ``TIMED_OUT``, or ``FAILED``.

    Raises:
        OSError: There is no confining here; the work was not done.
    """
    prctl(_SUBREAPER, 1)  # orphans of the child become ours, where it has no namespace to die with
    if os.geteuid() == 0:
        with suppress(PermissionError):  # root of a container, which may not: all else still holds
            leave_namespaces()
    child = os.fork()
    if child == 0:
        _work(work, limits, allowed, refused)
    try:
        held = os.pidfd_open(child)
        try:
            ended = readable(held, seconds)
        finally:
            os.close(held)
    finally:
        os.kill(child, signal.SIGKILL)  # it was not waited for yet: the number is still its own
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        _end_children()
    return status if ended else TIMED_OUT


def _work(work: Callable[[], int], limits: Limits, allowed: Iterable[str], refused: Refused) -> NoReturn:
    status = FAILED
    try:
        confine(limits, allowed, refused=refused)
        status = work()
    except BaseException as error:
        with suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(status)


def _end_children() -> None:
    """Kills every child of this process, and new ones that it inherits, until there is none."""
    listed = Path("/proc/thread-self/children")
    with suppress(OSError):  # the last one has gone, or the kernel keeps no list
        while True:
            for pid in listed.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def prctl(option: int, argument: int, more: int = 0) -> None:
    """prctl(2) with no result but success. Raises OSError."""
    _checked(_libc().prctl(ctypes.c_int(option), *map(ctypes.c_ulong, (argument, more, 0, 0))))
