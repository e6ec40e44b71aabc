"""Uprobes as perf events, for kernels before 6.6: one event and one link for each probe.

Attaching costs a fraction of a millisecond each, detaching a third of a second each (the kernel waits
until no CPU can be inside the probe). So only the functions of ``degradation.py`` are probed this way, and
another process closes the links after gputop has ended (``detacher.py``).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from probes.code import libraries
from probes.ebpf import attach_lock, bpfcall
from probes.process.system_calls import perf_event_open

PMU = Path("/sys/bus/event_source/devices/uprobe")

_IOC_ENABLE = 0x2400
_ATTRIBUTE_BYTES = 112  # PERF_ATTR_SIZE_VER5
_MOST_AT_ONCE = 250  # descriptors in one message; the kernel allows 253
_SPARE_DESCRIPTORS = 256  # for everything else
_NEEDED_DESCRIPTORS = 64  # for everything else, at least: files of the history, of libraries that are read
_DETACHER = Path(__file__).resolve().parent / "detacher.py"


@dataclass(frozen=True, slots=True)
class Pmu:
    """perf's uprobes as this kernel numbers them."""

    type: int
    return_bit: int


def read_pmu() -> Pmu:
    """The type of the event source, and the bit that requests a return probe.

    Raises:
        OSError: The kernel was built without perf's uprobes, or /sys is masked.
        ValueError: Its description of them has an unknown form.
    """
    number = int((PMU / "type").read_text())
    place = (PMU / "format" / "retprobe").read_text().strip()
    register, _, bit = place.partition(":")
    if register != "config":
        raise ValueError(f"{PMU}/format/retprobe says {place}")
    return Pmu(number, 1 << int(bit))


def is_allowed(pmu: Pmu) -> bool:
    """True if the kernel permits perf-event uprobes, which need CAP_PERFMON or CAP_SYS_ADMIN.

    Tried with a probe on a folder: a permitted caller gets "not a file". Which right is needed changed with
    Linux 6.16 and in updates of older kernels.
    """
    try:
        os.close(open_event(pmu.type, 0, ctypes.addressof(ctypes.create_string_buffer(b"/")), 0))
    except OSError as error:
        return error.errno not in (errno.EPERM, errno.EACCES)
    return True


def attach(
    pmu: Pmu, program: int, path: str, offsets: Sequence[int], cookies: Sequence[int], *, on_return: bool
) -> list[int]:
    """Attaches ``program`` at file offsets of ``path`` in all processes; each hit carries its cookie.

    Returns:
        The links; closing one detaches it.

    Raises:
        OSError: EPERM without rights, ENOENT for the path, EMFILE. Nothing is attached then.
    """
    links: list[int] = []
    name = ctypes.create_string_buffer(os.fsencode(path))
    config = pmu.return_bit if on_return else 0
    try:
        for offset, cookie in zip(offsets, cookies, strict=True):
            event = open_event(pmu.type, config, ctypes.addressof(name), offset)
            try:
                links.append(bpfcall.attach_perf_event(program, event, cookie))
                fcntl.ioctl(event, _IOC_ENABLE, 0)
            finally:
                os.close(event)  # the link keeps it
    except OSError:
        for link in links:
            os.close(link)
        raise
    return links


def open_event(number: int, config: int, name: int, offset: int) -> int:
    """A probe in all processes: the CPU is a formality. Raises OSError."""
    attribute = (ctypes.c_uint64 * (_ATTRIBUTE_BYTES // 8))()
    attribute[0] = number | _ATTRIBUTE_BYTES << 32
    attribute[1] = config
    attribute[7] = name  # config1
    attribute[8] = offset  # config2
    return perf_event_open(attribute, 0)


def first_of_each(targets: Iterable[libraries.Target]) -> Iterator[libraries.Target]:
    """Of libraries not in use yet, the first one of each kind and major version.

    Each takes half a minute to detach. The others are attached when a process maps them.
    """
    seen = set()
    for target in targets:
        kind = (target.layer, target.major)
        if kind not in seen:
            seen.add(kind)
            yield target


class Detacher:
    """The process that closes links after gputop (``probes/ebpf/detacher.py``), and gputop's copies of them.

    Copies keep the probes when that process is killed.

    Args:
        stopped: Map whose only element that process sets when gputop has ended, so that the probes cost
            little until they are closed.
        folder: Where the locks of ``probes/ebpf/attach_lock.py`` are; None for the default.
    """

    def __init__(self, stopped: int | None = None, folder: Path | None = None) -> None:
        self._stopped = stopped
        self._folder = folder
        self._batches: list[list[int]] = []
        self._start()

    def _start(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        cell = () if self._stopped is None else (self._stopped,)
        locks = attach_lock.opened(self._folder)  # opened anew: a shared open file shares its lock
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_DETACHER), *map(str, (theirs.fileno(), *locks, *cell))],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), *locks, *cell),
                    cwd="/",
                    start_new_session=True,  # the terminal's signals mean gputop, not it
                )
        finally:
            for lock in locks:
                os.close(lock)

    @property
    def pid(self) -> int:
        return self._process.pid

    def keep(self, links: list[int]) -> None:
        """Hands links over, to another process when the one before was killed."""
        self._batches.append(links)
        try:
            self._send(links)
        except OSError:
            self._replace()

    def _send(self, links: list[int]) -> None:
        for start in range(0, len(links), _MOST_AT_ONCE):
            socket.send_fds(self._channel, [b"+"], links[start : start + _MOST_AT_ONCE])

    def _replace(self) -> None:
        self._channel.close()
        self._start()
        with suppress(OSError):  # killed as well: then the copies are closed here, slowly
            for links in self._batches:
                self._send(links)

    def close(self) -> None:
        """Lets go of everything; returns at once, the kernel's work begins now."""
        if self._process.poll() is not None:
            self._replace()
        batches, self._batches = self._batches, []
        for link in chain.from_iterable(batches):
            os.close(link)
        self._channel.close()


def allow_descriptors(more: int) -> bool:
    """Raises the limit of open files as far as needed and permitted; True if it suffices.

    Not before it is needed: a program started later inherits the limit. The watched command was forked
    before.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(os.listdir("/proc/self/fd")) + more + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            soft = min(wanted, hard) if hard >= 0 else wanted
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft == resource.RLIM_INFINITY or soft >= wanted - _SPARE_DESCRIPTORS + _NEEDED_DESCRIPTORS
