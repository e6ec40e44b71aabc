"""The socket of annotations: datagrams, with sender and time from the kernel."""

from __future__ import annotations

import logging
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from probes.inside.annotations import MOST_BYTES, Datagram

VARIABLE: Final = "GPUTOP_ANNOTATE"  # in the environment of started commands: where to send
WELL_KNOWN: Final = "/run/gputop/annotate.sock"  # elsewhere
_LOG = logging.getLogger(__name__)
_CREDENTIALS: Final = struct.Struct("=iII")  # struct ucred: pid, uid, gid
_TIME: Final = struct.Struct("=qq")  # struct timespec
_SCM_CREDENTIALS, _SO_TIMESTAMPNS = 2, 35
_ROOM: Final = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_TIME.size)
_SLICE_S, _A_SLICE = 0.05, 256  # so many datagrams are read in such a time: a flood waits in the kernel
POLL_S: Final = 0.2
_READINGS, _CLOCKS_NS = 8, 5_000  # of two clocks, and how long one usually takes at most


@dataclass(frozen=True, slots=True)
class Bound:
    """A datagram socket, and its removal."""

    socket: socket.socket
    close: Callable[[], None]


def own_socket() -> tuple[Bound, str]:
    """A socket for the programs that one gputop starts, and its address as ``VARIABLE`` has it.

    It is in no folder: nothing is left behind, however gputop ends. Raises OSError.
    """
    name = f"gputop-annotate-{secrets.token_hex(8)}"
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        bound.bind("\0" + name)
    except OSError:
        bound.close()
        raise
    return Bound(bound, bound.close), "@" + name


def address_of(text: str) -> str:
    """The kernel's form of an address in the environment: ``@name`` is in no folder."""
    return "\0" + text[1:] if text.startswith("@") else text


class AnnotationSocket:
    """Reads in a thread of its own, so that senders find room, and at once where ``read_now`` is called."""

    def __init__(self, bound: Bound, consume: Callable[[Datagram], object]) -> None:
        self._bound, self._socket = bound, bound.socket
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.setblocking(False)
        self._consume = consume
        self._closed = False
        self._lock = threading.Lock()  # one datagram is read and consumed at a time, in the order of sending
        self._thread = threading.Thread(target=self._run, name="gputop-annotate", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):  # wakes the thread
            self._socket.sendto(b"", socket.MSG_DONTWAIT, self._socket.getsockname())
        if self._thread.ident is not None:
            self._thread.join()
        self._bound.close()

    def read_now(self) -> None:
        """Consume every datagram that has been sent: a process that has ended has no more after this.

        What is sent meanwhile may wait, so a flood does not hold the caller. The thread reports errors.
        """
        until_ns = time.monotonic_ns()
        with suppress(OSError):
            while not self._closed and (sent_ns := self._read_one()) and sent_ns < until_ns:
                pass

    def _read_one(self) -> int:
        """When the datagram that was read had been sent; 0: there is none."""
        with self._lock:
            try:
                datagram, sent_ns = self._receive()
            except BlockingIOError:
                return 0
            if datagram is not None and (datagram.message or not self._closed):
                self._consume(datagram)
            return sent_ns

    def _run(self) -> None:
        begun, count = time.monotonic(), 0
        arrived = select.poll()
        arrived.register(self._socket, select.POLLIN)
        while not self._closed:
            try:
                if not arrived.poll(POLL_S * 1e3) or not self._read_one():
                    continue
            except OSError as error:
                _LOG.warning("annotations are no longer read: %s", error)
                return
            now = time.monotonic()
            if now - begun > _SLICE_S:
                begun, count = now, 0
            elif (count := count + 1) >= _A_SLICE:
                time.sleep(_SLICE_S)

    def _receive(self) -> tuple[Datagram | None, int]:
        """One datagram, None where it is too long or its sender is not known, and when it was sent."""
        message, extra, flags, _address = self._socket.recvmsg(MOST_BYTES, _ROOM, socket.MSG_CMSG_CLOEXEC)
        now_ns = time.monotonic_ns()
        sender, at = None, now_ns
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == _SCM_CREDENTIALS:
                sender = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
            elif level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, ns = _TIME.unpack(data[: _TIME.size])
                at = min(seconds * 1_000_000_000 + ns + _monotonic_ahead_ns(), now_ns)
        if sender is None or sender[0] <= 0 or flags & socket.MSG_TRUNC:
            return None, at
        return Datagram(message, sender[0], sender[1], at), at


def _monotonic_ahead_ns() -> int:
    """How far CLOCK_MONOTONIC is ahead of CLOCK_REALTIME, by the quickest of some readings.

    A thread that loses its CPU between the two clocks reads them at two times.
    """
    best, ahead = 1 << 62, 0
    for _ in range(_READINGS):
        before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if after - before < best:
            best, ahead = after - before, (before + after) // 2 - real
        if best <= _CLOCKS_NS:
            break
    return ahead
