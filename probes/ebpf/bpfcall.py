"""The commands of bpf(2) that gputop needs: maps, programs, links, batch reads."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from probes.process.system_calls import system_call

_NR_BPF = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _MAP_DELETE, _PROG_LOAD = 0, 1, 2, 3, 5
_RAW_TRACEPOINT_OPEN, _MAP_LOOKUP_BATCH, _LINK_CREATE = 17, 24, 28
_TRACE_RAW_TP, _PERF_EVENT, UPROBE_MULTI = 23, 41, 48  # enum bpf_attach_type, linux/bpf.h
UPROBE_SESSION, _UPROBE_MULTI_RETURN = 57, 1
_RETURN_0 = (0x00000000000000B7, 0x0000000000000095)  # r0 = 0; exit
_NAME_BYTES = 16
_LOG_BYTES = 1 << 24
_LOAD_TRIES = 6
_LOG_LINES = 40  # the last ones name the error


def bpf_call(command: int, attribute: ctypes.Array[ctypes.c_uint64]) -> int:
    """bpf(2). Raises OSError."""
    return system_call(_NR_BPF, command, attribute, ctypes.sizeof(attribute))


def _attribute(*words: int) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * 16)(*words)


def _packed(form: str, *values: int | bytes) -> ctypes.Array[ctypes.c_uint64]:
    attribute = _attribute()
    struct.pack_into(form, attribute, 0, *values)
    return attribute


class ProgramType(IntEnum):
    """Types of programs (linux/bpf.h)."""

    KPROBE = 2  # uprobes, too
    PERF_EVENT = 7
    RAW_TRACEPOINT = 17
    TRACING = 26  # a raw tracepoint with typed arguments


class RefusedError(OSError):
    """The kernel refuses ``program``; ``log`` is the end of its verifier's output."""

    def __init__(self, program: str, refusal: OSError, log: Sequence[str]) -> None:
        super().__init__(refusal.errno, refusal.strerror)
        self.program = program
        self.log = tuple(log)


def create_map(name: str, kind: int, key_bytes: int, value_bytes: int, entries: int, flags: int) -> int:
    """Makes a map and returns its descriptor. Raises OSError: EPERM without rights, ENOMEM."""
    facts = (kind, key_bytes, value_bytes, entries, flags, 0, 0, _name(name))
    return bpf_call(_MAP_CREATE, _packed("<7I16s", *facts))


def load_program(name: str, kind: ProgramType, code: bytes, attach_type: int = 0, arguments: int = 0) -> int:
    """Loads a program and returns its descriptor.

    Args:
        name: Its name in the kernel, which keeps 15 characters.
        kind: Its type.
        code: Its instructions.
        attach_type: Where such a program needs one.
        arguments: TRACING: the kernel's number of the type that describes them.

    Raises:
        RefusedError: EPERM without rights; with the verifier's reasons, if it has any.
    """
    license_text = ctypes.create_string_buffer(b"GPL")
    instructions = ctypes.create_string_buffer(code, len(code))
    what = (kind, len(code) // 8, ctypes.addressof(instructions), ctypes.addressof(license_text))
    if kind is ProgramType.TRACING:
        attach_type = _TRACE_RAW_TP
    how = (0, 0, _name(name), 0, attach_type, arguments)
    form = "<IIQQ IIQ II16sII 36x I"
    try:
        return _verified(_packed(form, *what, 0, 0, 0, *how))
    except OSError as error:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        try:  # once more, for the reason
            return _verified(_packed(form, *what, 1, _LOG_BYTES, ctypes.addressof(log), *how))
        except OSError:
            lines = log.value.decode(errors="replace").splitlines()
            raise RefusedError(name, error, lines[-_LOG_LINES:]) from error


def _verified(attribute: ctypes.Array[ctypes.c_uint64]) -> int:
    """Loads a program. The verifier gives up with EAGAIN where its thread is interrupted.

    By a signal, a debugger, a frozen cgroup: signals wait until the load is done, the others are over by the
    next try.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        for _ in range(_LOAD_TRIES - 1):
            with contextlib.suppress(BlockingIOError):
                return bpf_call(_PROG_LOAD, attribute)
        return bpf_call(_PROG_LOAD, attribute)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _name(text: str) -> bytes:
    return text.encode()[: _NAME_BYTES - 1]


def attach_uprobes(
    program: int,
    path: str,
    offsets: Sequence[int],
    cookies: Sequence[int],
    *,
    on_return: bool = False,
    session: bool = False,
    pid: int = 0,
) -> int:
    """One link that attaches ``program`` at file offsets of ``path``; each hit carries its cookie.

    Args:
        program: File descriptor of a program for uprobes.
        path: The file.
        offsets: Where in it.
        cookies: One for each.
        on_return: It runs when the function returns.
        session: It runs at both, loaded for that: where its entry returns 1, it does not run at the return.
        pid: The only process that is probed; 0: all.

    Returns:
        The link's file descriptor; closing it detaches.

    Raises:
        OSError: EINVAL before kernel 6.6, EPERM without rights, ENOENT for the path.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    where = (ctypes.c_uint64 * len(offsets))(*offsets)
    which = (ctypes.c_uint64 * len(cookies))(*cookies)
    flags = _UPROBE_MULTI_RETURN if on_return else 0
    return bpf_call(
        _LINK_CREATE,
        _attribute(
            program,  # prog_fd, target_fd = 0
            UPROBE_SESSION if session else UPROBE_MULTI,  # attach_type, flags = 0
            ctypes.addressof(name),
            ctypes.addressof(where),
            0,
            ctypes.addressof(which),
            len(offsets) | flags << 32,
            pid,
        ),
    )


def empty_uprobe(attach_type: int = UPROBE_MULTI) -> int:
    """The file descriptor of a program for such links that does nothing. Raises OSError."""
    code = (ctypes.c_uint64 * 2)(*_RETURN_0)
    license_text = ctypes.create_string_buffer(b"GPL")
    load = [ProgramType.KPROBE | len(code) << 32, ctypes.addressof(code), ctypes.addressof(license_text)]
    return bpf_call(_PROG_LOAD, _attribute(*load, 0, 0, 0, 0, 0, attach_type << 32))


def has_uprobe_multi(attach_type: int = UPROBE_MULTI) -> bool | None:
    """Whether the kernel has multi-uprobe links (6.6), or sessions (6.13); None without the right to try.

    Tried with a link to a folder: a kernel that knows such links answers that it is no file.
    """
    folder = ctypes.create_string_buffer(b"/")
    where = (ctypes.c_uint64 * 1)()
    try:
        program = empty_uprobe(attach_type)
    except OSError as error:
        return _knows(error)
    link = [program, attach_type, ctypes.addressof(folder), ctypes.addressof(where), 0, 0, 1]
    try:
        os.close(bpf_call(_LINK_CREATE, _attribute(*link)))
    except OSError as error:
        return _knows(error)
    finally:
        os.close(program)
    return True


def _knows(refusal: OSError) -> bool | None:
    """The meaning of a refused try: without rights every kernel refuses in the same way."""
    if refusal.errno in (errno.EPERM, errno.EACCES):
        return None
    return refusal.errno != errno.EINVAL


def attach_perf_event(program: int, event: int, cookie: int) -> int:
    """Attaches ``program`` to a perf event; each hit carries the cookie (Linux 5.15).

    Returns:
        The link's file descriptor, which also keeps the event; closing it detaches. Raises OSError.
    """
    return bpf_call(_LINK_CREATE, _attribute(program | event << 32, _PERF_EVENT, cookie))


def attach_raw_tracepoint(program: int, name: str) -> int:
    """Attaches a raw tracepoint program; closing the returned descriptor detaches. Raises OSError.

    A program of type TRACING knows its tracepoint: then ``name`` is "".
    """
    if not name:
        return bpf_call(_RAW_TRACEPOINT_OPEN, _attribute(0, program))
    text = ctypes.create_string_buffer(name.encode())
    return bpf_call(_RAW_TRACEPOINT_OPEN, _attribute(ctypes.addressof(text), program))


def update(map_fd: int, key: bytes, value: bytes, flags: int = 0) -> None:
    """Sets one element of a map. Raises OSError: E2BIG when the map is full, EEXIST with BPF_NOEXIST."""
    key_buffer, value_buffer = ctypes.create_string_buffer(key), ctypes.create_string_buffer(value)
    place = ctypes.addressof(key_buffer), ctypes.addressof(value_buffer)
    bpf_call(_MAP_UPDATE, _attribute(map_fd, *place, flags))


def contains(map_fd: int, key: bytes, value_bytes: int) -> bool:
    """True if a map has an element. Raises OSError."""
    return element(map_fd, key, value_bytes) is not None


def element(map_fd: int, key: bytes, value_bytes: int) -> bytes | None:
    """One element of a map, None where it has none. Raises OSError."""
    key_buffer, value = ctypes.create_string_buffer(key), ctypes.create_string_buffer(value_bytes)
    try:
        bpf_call(_MAP_LOOKUP, _attribute(map_fd, ctypes.addressof(key_buffer), ctypes.addressof(value), 0))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    return value.raw


def delete(map_fd: int, key: bytes) -> None:
    """Removes one element of a map. Raises OSError: ENOENT."""
    buffer = ctypes.create_string_buffer(key)
    bpf_call(_MAP_DELETE, _attribute(map_fd, ctypes.addressof(buffer)))


class BatchReader:
    """Reads all elements of a hash or array map with few system calls."""

    def __init__(self, map_fd: int, key_bytes: int, value: np.dtype[np.void]) -> None:
        self._fd = map_fd
        self._key_bytes = key_bytes
        self._value = value
        self._allocate(512)  # elements of a system call; more when a bucket does not fit

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys = np.zeros(capacity * self._key_bytes, np.uint8)
        self._values = np.zeros(capacity, self._value)

    def read(self) -> npt.NDArray[np.void]:
        """A copy of all values. Elements that change meanwhile may be missing or doubled.

        Raises:
            OSError: The kernel has no batch reads (before 5.6).
        """
        cursors = [(ctypes.c_uint64 * 4)(), (ctypes.c_uint64 * 4)()]
        parts: list[npt.NDArray[np.void]] = []
        first, finished = True, False
        while not finished:
            attribute = _attribute(
                0 if first else ctypes.addressof(cursors[0]),
                ctypes.addressof(cursors[1]),
                self._keys.ctypes.data,
                self._values.ctypes.data,
                self._capacity | self._fd << 32,
                0,
                0,
            )
            try:
                bpf_call(_MAP_LOOKUP_BATCH, attribute)
            except OSError as error:
                if error.errno == errno.ENOSPC:  # a hash bucket holds more than fits
                    self._allocate(2 * self._capacity)
                    continue
                if error.errno != errno.ENOENT:
                    raise
                finished = True
            parts.append(self._values[: int(attribute[4]) & 0xFFFFFFFF].copy())
            cursors.reverse()
            first = False
        return np.concatenate(parts)
