"""Blocks on descriptors of every sort, one after the other, and says which they were: descriptors.py FOLDER.

It uses a number again when the file FOLDER/asked is there, and ends when FOLDER/end is.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

LATER_S = 0.05
FRESH_S = 1.0  # gputop asks for a number that it knows again when that is so long ago
FUTEX, FUTEX_WAIT = {"x86_64": 202, "aarch64": 98}[os.uname().machine], 0


def wait_blocked(thread: int, descriptor: int) -> None:
    """Waits until a thread blocks on a descriptor, and not for Python's lock."""
    while True:
        call = Path(f"/proc/self/task/{thread}/syscall").read_text().split()
        if call[0] not in ("running", str(FUTEX)) and int(call[1], 16) == descriptor:
            return
        time.sleep(0.001)


def later(descriptor: int, action: Callable[[], object]) -> None:
    """Does something once this thread has been blocked on a descriptor for a while."""
    thread = threading.get_native_id()

    def act() -> None:
        wait_blocked(thread, descriptor)
        time.sleep(LATER_S)
        action()

    threading.Thread(target=act).start()


def note(call: str, descriptor: int, what: str, **more: object) -> None:
    """Says which call blocked."""
    said = {"pid": os.getpid(), "tid": threading.get_native_id(), "call": call}
    with open(os.environ["SELF_LOG"], "a") as log:
        log.write(json.dumps(said | {"argument": descriptor, "what": what} | more) + "\n")


def wait_for(file: Path) -> None:
    """Waits until there is a file."""
    while not file.exists():
        time.sleep(0.01)


def pipe_read(again: int | None = None) -> tuple[int, int]:
    """Reads from a pipe, whose end may get a number that was something else before."""
    out, into = os.pipe()
    if again is not None:
        os.dup2(out, again)
        os.close(out)
        out = again
    later(out, lambda: os.write(into, b"x"))
    os.read(out, 1)
    note("read", out, "pipe")
    return out, into


def main() -> None:
    """One wait after the other."""
    folder = Path(sys.argv[1])
    for _ in range(32):  # the numbers below are new: an import may have waited for the disk on a low one
        os.open(os.devnull, os.O_RDONLY)
    ours, theirs = socket.socketpair()
    later(ours.fileno(), lambda: theirs.send(b"x"))
    ours.recv(1)
    note("recvfrom", ours.fileno(), "socket:local")
    event = os.eventfd(0)
    later(event, lambda: os.eventfd_write(event, 1))
    os.eventfd_read(event)
    note("read", event, "eventfd")
    path = folder / "locked.bin"
    holder, file = os.open(path, os.O_RDWR | os.O_CREAT), os.open(path, os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    later(file, lambda: fcntl.flock(holder, fcntl.LOCK_UN))
    fcntl.flock(file, fcntl.LOCK_EX)
    note("flock", file, f"file:{path}")
    word = ctypes.c_uint32(7)
    wait = (ctypes.c_long * 2)(0, 30_000_000)
    ctypes.CDLL(None).syscall(FUTEX, ctypes.byref(word), FUTEX_WAIT, 7, wait, 0, 0)
    note("futex", ctypes.addressof(word) & 0xFFFFFFFF, "")
    wait_for(folder / "asked")
    time.sleep(FRESH_S)
    pipe_read(again=file)
    out, _ = os.pipe()
    reader = threading.Thread(target=os.read, args=(out, 1), daemon=True)
    reader.start()
    wait_blocked(reader.native_id or 0, out)
    note("read", out, "pipe", open=True)
    wait_for(folder / "end")
    os._exit(0)


main()
