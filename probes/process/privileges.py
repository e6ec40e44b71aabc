"""What gputop may do beyond its user's ids: it keeps what it still needs, and gives the rest up for ever.

Capabilities belong to threads, and a thread hands its own down. So the first thread gives up before others
begin, and before the first file of somebody else's is opened; NVML's thread, which is older, does so itself.
The command that is watched keeps all that it had: it was forked before. And only gputop's own process does
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


# What observing takes to its end: libraries come and go, and with them probes and programs.
OBSERVING = frozenset(
    {
        Capability.BPF,  # programs for lines come later; before Linux 6.5 it takes it to read a map, too
        Capability.PERFMON,  # uprobes; what programs may read
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
# NVIDIA's driver takes it for "administrator", without which some figures are not reported
DRIVER = frozenset({Capability.SYS_ADMIN})
_POWERS = frozenset(parsed(POWERS, os.uname().machine))
_OF_A_DAEMON = of_a_daemon(os.uname().machine)


def confine_process(needed: Collection[int], *, daemon: bool = False) -> str:
    """For the first thread, while the others that are to be confined have not begun.

    Afterwards no program that is started has more rights, no other user's process may look into this one,
    and these threads may still go before others.

    Args:
        needed: Capabilities that are kept, as far as there are any.
        daemon: Only those system calls are left that a daemon makes, and what it starts.

    Returns:
        Why rights are kept that are not needed, in a sentence; "" where none are.
    """
    if daemon:
        with suppress(OSError):  # as below, whose words for a call that is forbidden hold before these
            sandbox.allow_only(_OF_A_DAEMON, refused=sandbox.Refused.UNKNOWN)
    refused = confine_thread({*needed, *_beyond_limits()})
    if os.geteuid() == 0:  # of who is not root the kernel has seen to it where there is something to hide
        with suppress(OSError):
            sandbox.hide_memory()
    return refused


def confine_thread(needed: Collection[int]) -> str:
    """This thread, and what it starts, keeps these capabilities and gets no new ones; returns as above.

    What rights would still allow of ``syscall_numbers.POWERS``, a filter of system calls refuses.
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
    except OSError as error:  # a filter of system calls: what was given up before stays so
        return f"gputop keeps unneeded privileges: the kernel refused to drop them ({error.strerror})"
    return ""


@contextmanager
def only(needed: Collection[int]) -> Iterator[None]:
    """Meanwhile no other capability is in effect, so that one learns what these allow. Raises OSError."""
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
    """Threads that go before others, and rings that stay in memory, take limits or else capabilities."""
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
