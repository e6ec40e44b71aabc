"""Rights of gputop beyond its user's ids: it keeps those that it still needs, and gives up the rest for ever.

Capabilities belong to threads, and a thread hands its own down. So the first thread gives up before others
begin, and before the first file of another user is opened; NVML's thread, which is older, does so itself.
The watched command keeps all that it had: it was forked before. And only gputop's own process does
this, no other one that uses these packages.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum

from probes.process import realtime, sandbox
from probes.process.syscall_numbers import POWERS, of_a_daemon, parsed

_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3


class Capability(IntEnum):
    """Those that gputop has a use for (linux/capability.h)."""

    CHOWN = 0
    DAC_OVERRIDE = 1
    DAC_READ_SEARCH = 2
    FOWNER = 3
    KILL = 5
    SETGID = 6
    SETUID = 7
    SETPCAP = 8
    IPC_LOCK = 14
    SYS_PTRACE = 19
    SYS_ADMIN = 21
    SYS_NICE = 23
    SYS_RESOURCE = 24
    PERFMON = 38
    BPF = 39
    CHECKPOINT_RESTORE = 40


# Rights that observing needs to its end: libraries come and go, and with them probes and programs.
OBSERVING = frozenset(
    {
        Capability.BPF,  # programs for lines come later; before Linux 6.5 reading a map needs it, too
        Capability.PERFMON,  # uprobes; memory that programs may read
        Capability.SYS_PTRACE,  # maps, descriptors and memory of other users' processes
        Capability.DAC_READ_SEARCH,  # their libraries and sources, their environments
        Capability.CHECKPOINT_RESTORE,  # map_files: the very file where no path leads to it
        Capability.SETUID,  # helpers become nobody; files are opened as the user behind sudo
        Capability.SETGID,
    }
)
SIGNALS = frozenset({Capability.KILL})
# Root writes where it likes; a file of the user behind sudo becomes that user's.
FILES = frozenset({Capability.DAC_OVERRIDE, Capability.CHOWN, Capability.FOWNER})
# "administrator" to NVIDIA's driver, without which some figures are not reported
DRIVER = frozenset({Capability.SYS_ADMIN})
_POWERS = frozenset(parsed(POWERS, os.uname().machine))
_OF_A_DAEMON = of_a_daemon(os.uname().machine)


def confine_process(needed: Collection[int], *, daemon: bool = False) -> str:
    """Confines the first thread, before others that are to be confined have begun.

    Afterwards no started program has more rights, no other user's process may look into this one,
    and these threads may still go before others.

    Args:
        needed: Capabilities that are kept, as far as there are any.
        daemon: Only system calls of a daemon, and of its children, stay allowed.

    Returns:
        Why needless rights are kept, in a sentence; "" where none are.
    """
    if daemon:
        with suppress(OSError):  # as below, whose error for a forbidden call comes before these
            sandbox.allow_only(_OF_A_DAEMON, refused=sandbox.Refused.UNKNOWN)
    refused = confine_thread({*needed, *_beyond_limits()})
    if os.geteuid() == 0:  # without root the kernel has done so where there is something to hide
        with suppress(OSError):
            sandbox.hide_memory()
    return refused


def confine_thread(needed: Collection[int]) -> str:
    """This thread, and its children, keep these capabilities and get no new ones; returns as above.

    Where rights would still allow one of ``syscall_numbers.POWERS``, a filter of system calls refuses it.
    """
    kept = _mask(needed)
    try:
        effective, permitted, inheritable = _read()
        if effective >> Capability.SETPCAP & 1:
            sandbox.keep_within(kept)
        _write(effective & kept, permitted & kept, inheritable & kept)
        sandbox.forbid_new_rights()
        with suppress(OSError):  # a kernel without filters, or another architecture
            sandbox.forbid(_POWERS)
    except OSError as error:  # a filter of system calls: rights given up before stay so
        return f"gputop keeps unneeded privileges: the kernel refused to drop them ({error.strerror})"
    return ""


@contextmanager
def only(needed: Collection[int]) -> Iterator[None]:
    """Meanwhile no other capability is in effect, to find out what these allow. Raises OSError."""
    effective, permitted, inheritable = _read()
    _write(effective & _mask(needed), permitted, inheritable)
    try:
        yield
    finally:
        _write(effective, permitted, inheritable)


def held() -> frozenset[Capability]:
    """Those that this thread has in effect. Raises OSError."""
    effective = _read()[0]
    return frozenset(one for one in Capability if effective >> one & 1)


def _beyond_limits() -> Iterator[Capability]:
    """Threads that go before others, and rings that stay in memory, need limits or else capabilities."""
    endless = resource.RLIM_INFINITY
    for limit, most, otherwise in (
        (resource.RLIMIT_NICE, 20 - realtime.NICE, Capability.SYS_NICE),
        (resource.RLIMIT_MEMLOCK, endless, Capability.IPC_LOCK),
    ):
        try:
            resource.setrlimit(limit, (most, most))
        except (OSError, ValueError):
            yield otherwise


def _mask(capabilities: Collection[int]) -> int:
    return sum(1 << capability for capability in set(capabilities))


def _read() -> tuple[int, int, int]:
    """Effective, permitted and inheritable capabilities of this thread, as bit masks. Raises OSError."""
    data = ctypes.create_string_buffer(24)
    _call("capget", data)
    low, high = struct.unpack("3I", data.raw[:12]), struct.unpack("3I", data.raw[12:])
    effective, permitted, inheritable = (first | more << 32 for first, more in zip(low, high, strict=True))
    return effective, permitted, inheritable


def _write(*sets: int) -> None:
    low, high = [one & 0xFFFFFFFF for one in sets], [one >> 32 for one in sets]
    _call("capset", ctypes.create_string_buffer(struct.pack("6I", *low, *high), 24))


def _call(name: str, data: ctypes.Array[ctypes.c_char]) -> None:
    header = ctypes.create_string_buffer(struct.pack("Ii", _VERSION, 0))  # 0: the calling thread
    if getattr(ctypes.CDLL(None, use_errno=True), name)(header, data):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
