"""A file system in user space that keeps whoever touches some of its files waiting for ever.

What it says holds for that moment only: everybody asks it anew each time.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.conftest import skip_or_fail

NAMES = ("", "libcudart.so.12", "hangs-when-opened", "hangs-when-read", "hangs-when-closed")
ANSWERS, WHEN_OPENED, WHEN_READ, WHEN_CLOSED = NAMES[1:]
stalled = threading.Event()  # while it is set nobody gets an answer
_ROOT, _FORCE, _DETACH = 1, 1, 2
# linux/fuse.h
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _FLUSH, _INIT, _INTERRUPT, _FORGETS = (
    1, 2, 3, 14, 15, 18, 25, 26, 36, 42
)  # fmt: skip
_NO_ENTRY, _NOT_KNOWN = -2, -38
_SILENT = (_FORGET, _INTERRUPT, _FORGETS)


class _Daemon:
    def __init__(self, device: int, content: bytes) -> None:
        self._device, self._content = device, content
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):  # unmounted
            while True:
                request = os.read(self._device, 1 << 17)
                _size, code, unique, node = struct.unpack_from("<IIQQ", request)
                answer = self._answer(code, node, request[40:])
                if answer is not None and code not in _SILENT:
                    error, data = answer if isinstance(answer, tuple) else (0, answer)
                    with suppress(FileNotFoundError):  # who asked was killed
                        os.write(self._device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)

    def _answer(self, code: int, node: int, rest: bytes) -> bytes | tuple[int, bytes] | None:
        if stalled.is_set():
            return None
        if code == _INIT:
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 8, 8, 1 << 16, 1, 16, 0, 0)
        if code == _GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self._attributes(node)
        if code == _LOOKUP:
            name = rest.rstrip(b"\0").decode()
            if name not in NAMES:
                return _NO_ENTRY, b""
            if name == WHEN_OPENED:
                return None
            found = NAMES.index(name) + _ROOT
            return struct.pack("<QQQQII", found, 0, 0, 0, 0, 0) + self._attributes(found)
        if code == _OPEN:
            return struct.pack("<QII", 1, 0, 0)
        if code == _READ:
            if NAMES[node - _ROOT] == WHEN_READ:
                return None
            _handle, offset, size = struct.unpack_from("<QQI", rest)
            return self._content[offset : offset + size]
        if code == _FLUSH and NAMES[node - _ROOT] == WHEN_CLOSED:
            return None
        return b"" if code in (_FLUSH, _RELEASE) else (_NOT_KNOWN, b"")

    def _attributes(self, node: int) -> bytes:
        folder = node == _ROOT
        mode = stat.S_IFDIR | 0o755 if folder else stat.S_IFREG | 0o755
        size = 0 if folder else len(self._content)
        return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


@contextmanager
def mounted(folder: Path, content: bytes) -> Iterator[Path]:
    """Mounts it there; its files hold ``content``. Skips where that cannot be."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        skip_or_fail(f"no file systems in user space here (/dev/fuse: {error.strerror})")
        raise
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"hangs", os.fsencode(folder), b"fuse", ctypes.c_ulong(0), options):
        os.close(device)
        skip_or_fail(f"a file system in user space cannot be mounted: {os.strerror(ctypes.get_errno())}")
    _Daemon(device, content)
    try:
        yield folder
    finally:
        stalled.clear()
        libc.umount2(os.fsencode(folder), _FORCE | _DETACH)
        os.close(device)
