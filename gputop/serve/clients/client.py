"""The unprivileged client of the daemon's socket."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gputop.errors import CommandError
from gputop.serve.clients import wire
from probes.ebpf.loader import ProbeError
from probes.samples import process_data
from probes.source import PROBLEM, Item, Sample

_READ = 1 << 16
_NO_ANSWER = "the daemon ended without an answer: see its log"
_ANSWER_S = 30.0
_ANSWER_TIME = struct.pack("@ll", int(_ANSWER_S), 0)  # a timeval


class Connection:
    """One request to the daemon, and its answers."""

    def __init__(self, path: str, request: str, **more: Any) -> None:
        """Connect and send the request.

        Raises:
            CommandError: No daemon answers there, or one that is not root's.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._incoming = wire.Incoming(wire.MOST_MESSAGE)
        # settimeout only later: with it connecting would fail at once while the queue is full
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _ANSWER_TIME)
        try:
            self._socket.connect(path)
            self._socket.settimeout(_ANSWER_S)
            uid = wire.peer(self._socket)[1]
            if uid not in (0, os.geteuid()):
                raise CommandError(
                    f"{path} is user {uid}'s, not root's: name the daemon's socket by --socket"
                )
            with suppress(BrokenPipeError):  # refused already: the reason can be read
                self._socket.sendall(wire.packed({"gputop": wire.VERSION, "ask": request, **more}))
        except PermissionError as error:
            self._socket.close()
            raise CommandError(
                f"this user may not reach {path} ({error.strerror}), so it is not known whether a gputop "
                "daemon answers there: its socket has to lie in a folder that all may enter (--socket)"
            ) from error
        except OSError as error:
            self._socket.close()
            raise CommandError(
                f"no gputop daemon answers at {path} ({error.strerror or error}); to start one: "
                "sudo gputop serve, or systemctl start gputop"
            ) from error
        except CommandError:
            self._socket.close()
            raise

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the answers, until the last.

        Raises:
            ProbeError: The daemon refused, ended, or sent an invalid message.
        """
        try:
            while data := self._socket.recv(_READ):
                for message in self._incoming.feed(data):
                    if message.get("k") in ("error", "end"):
                        raise ProbeError(str(message.get("text", "the daemon ended the answer")))
                    yield message
        except wire.WireError as error:
            raise ProbeError(f"unreadable message from the daemon: {error}") from error
        except OSError as error:
            raise ProbeError(f"the daemon does not answer any more: {error.strerror or error}") from error

    def close(self) -> None:
        """Disconnect; a waiting reader gets no more messages."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            self._socket.close()  # it has gone already


def request_once(path: str, request: str, **more: Any) -> dict[str, Any]:
    """Return the single answer to a request.

    Raises:
        CommandError: There is none.
    """
    connection = Connection(path, request, **more)
    try:
        for message in connection.messages():
            return message
    except ProbeError as error:
        raise CommandError(str(error)) from error
    finally:
        connection.close()
    raise CommandError(_NO_ANSWER)


class RemoteSource:
    """A source like a live one, of the daemon's data for this user."""

    def __init__(self, path: str) -> None:
        """Follow the daemon at a socket.

        Raises:
            CommandError: It does not answer.
        """
        self._connection = Connection(path, "follow")
        self._messages = self._connection.messages()
        self._closed = False
        self._alive: set[int] = set()
        try:
            first = next(self._messages, {})
        except ProbeError as error:
            raise CommandError(str(error)) from error
        if not first:
            raise CommandError(_NO_ANSWER)
        if first.get("k") != "header" or not isinstance(first.get("data"), dict):
            raise CommandError("no gputop daemon of this version answers there")
        self._header: dict[str, Any] = first["data"]

    @property
    def header(self) -> dict[str, Any]:
        return self._header

    @property
    def alive(self) -> list[int]:
        return sorted(self._alive)

    def ready(self) -> None:
        """Do nothing: the daemon observes already."""

    def items(self) -> Iterator[Item]:
        """Yield the daemon's items, until ``close``.

        Raises:
            ProbeError: The daemon has ended, or was stopped.
        """
        try:
            for message in self._messages:
                yield from self.items_of(message)
        except ProbeError:
            if not self._closed:
                raise
        if not self._closed:
            raise ProbeError("the daemon has ended; its data stays here until you quit")

    def items_of(self, message: dict[str, Any]) -> Iterator[Item]:
        if message.get("k") == "dropped":
            text = f"{message.get('ticks')} ticks were skipped: this gputop read them too slowly"
            yield Sample(PROBLEM, time.monotonic_ns(), {"text": text, "about": "slow client"})
        elif message.get("k") == "items" and isinstance(message.get("chunks"), bytes):
            try:
                for item in wire.items_of(message["chunks"]):
                    self._notice(item)
                    yield item
            except wire.WireError as error:
                raise ProbeError(str(error)) from error

    def _notice(self, item: Item) -> None:
        if isinstance(item, Sample) and (data := process_data(item)) is not None and data.get("watched"):
            (self._alive.discard if data.get("exited_ns") is not None else self._alive.add)(data["pid"])

    def close(self) -> None:
        self._closed = True
        self._connection.close()

    def abandon(self) -> None:
        self.close()
