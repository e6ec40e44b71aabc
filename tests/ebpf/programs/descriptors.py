"""Blocks on descriptors of every sort, one after the other, and says which they were."""

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
FUTEX, FUTEX_WAIT = {"x86_64": 202, "aarch64": 98}[os.uname().machine], 0
said: list[dict[str, object]] = []


def later(action: Callable[[], object]) -> None:
    """Does something while this thread blocks."""
    threading.Timer(LATER_S, action).start()


def note(call: str, descriptor: int, what: str) -> None:
    """Notes a call that blocked."""
    said.append(
        {"pid": os.getpid(), "tid": threading.get_native_id(), "call": call}
        | {"argument": descriptor, "what": what}
    )


def pipe_read(again: int | None = None) -> tuple[int, int]:
    """Reads from a pipe, whose end may get a number that was something else before."""
    out, into = os.pipe()
    if again is not None:
        os.dup2(out, again)
        os.close(out)
        out = again
    later(lambda: os.write(into, b"x"))
    os.read(out, 1)
    note("read", out, "pipe")
    return out, into


def main() -> None:
    """One wait after the other."""
    ours, theirs = socket.socketpair()
    later(lambda: theirs.send(b"x"))
    ours.recv(1)
    note("recvfrom", ours.fileno(), "socket")
    event = os.eventfd(0)
    later(lambda: os.eventfd_write(event, 1))
    os.eventfd_read(event)
    note("read", event, "eventfd")
    path = Path(sys.argv[1]) / "locked.bin"
    holder, file = os.open(path, os.O_RDWR | os.O_CREAT), os.open(path, os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    later(lambda: fcntl.flock(holder, fcntl.LOCK_UN))
    fcntl.flock(file, fcntl.LOCK_EX)
    note("flock", file, f"file:{path}")
    word = ctypes.c_uint32(7)
    wait = (ctypes.c_long * 2)(0, 30_000_000)
    ctypes.CDLL(None).syscall(FUTEX, ctypes.byref(word), FUTEX_WAIT, 7, wait, 0, 0)
    note("futex", ctypes.addressof(word) & 0xFFFFFFFF, "")
    time.sleep(1.3)
    pipe_read(again=file)
    with open(os.environ["SELF_LOG"], "a") as log:
        log.writelines(json.dumps(line) + "\n" for line in said)
    out, _ = os.pipe()
    threading.Thread(target=os.read, args=(out, 1), daemon=True).start()
    note("read", out, "pipe")
    with open(os.environ["SELF_LOG"], "a") as log:
        log.write(json.dumps(said[-1] | {"open": True}) + "\n")
    time.sleep(0.6)
    os._exit(0)


main()
