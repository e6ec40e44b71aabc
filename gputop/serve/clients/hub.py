"""The daemon's socket: accepts clients, answers their requests, and waits for none of them."""

from __future__ import annotations

import errno
import logging
import math
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from gputop.serve.clients import wire
from gputop.serve.clients.answering import ABORTABLE_S, Answering
from gputop.serve.clients.user_view import ROOT
from gputop.serve.rate_limit import RateLimiter, thread_cpu_s
from probes.proc.subordinate import Subordinates

_LOG = logging.getLogger(__name__)
MOST_CLIENTS: Final = 128
ROOTS: Final = 8  # of them for root: a user may have many uids by /etc/subuid
ANSWERS: Final = 4  # of the past, at a time, beside root's own
MOST_OF_ONE: Final = 32  # of one user who is not root
MOST_WAITING: Final = 8 << 20  # pending bytes of a client; further ticks are skipped, and counted for it
MOST_IN_ALL: Final = 64 << 20  # for all but root; above it the client with most pending is dropped
SILENT_S: Final = 5.0  # for a client to send its request
LAST_WORDS_S: Final = 0.5  # for clients to read the last messages
STUCK_S: Final = 30.0  # a client that reads nothing for this long is dropped
COMERS: Final = (200.0, 64.0)  # accepted clients in a second, and at once: each costs CPU
ANSWERING: Final = (0.2, 5.0)  # CPU seconds that answers to a user may cost in a second, and at once
_READ: Final = 4096

Answer = Callable[[Answering, int, dict[str, Any]], None]  # has the connection for itself, in a thread


@dataclass(eq=False, slots=True)
class Client:
    """A connected client."""

    connection: socket.socket
    uid: int  # the user
    account: int  # the account that the user's limits count for
    pid: int
    since: float
    incoming: wire.Incoming = field(default_factory=lambda: wire.Incoming(wire.MOST_REQUEST))
    waiting: deque[memoryview] = field(default_factory=deque)
    waiting_bytes: int = 0
    follows: bool = False  # whether it receives observed items
    joining: bool = False  # True until it has received the known facts
    left_out: int = 0  # ticks that it was too slow for
    ending: bool = False  # after all pending data


class Hub:
    """Owns the clients. ``followers`` to ``leave_out`` are for the showing thread, the rest for its own."""

    def __init__(
        self,
        listener: socket.socket,
        status: Callable[[int], dict[str, Any]],
        answers: dict[str, Answer],
        *,
        sees_all: int = ROOT,
    ) -> None:
        """Adopt the listening socket.

        Args:
            listener: Bound; not blocking.
            status: The daemon's status for a user.
            answers: Further requests; each is answered in a thread of its own.
            sees_all: A user who receives all observed items, beside root.
        """
        self._listener, self._status, self.answers = listener, status, answers
        self._sees_all = sees_all
        self.clients: dict[int, Client] = {}  # by descriptor
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._closed = False
        self.answering: dict[threading.Thread, Answering] = {}
        self._subordinates = Subordinates()
        self._comers = RateLimiter(*COMERS)
        self._owing: dict[int, RateLimiter] = {}  # cost of answers by account
        self._answers_s = 0.0
        self._thread = threading.Thread(target=self._run, name="gputop-socket", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # -- who shows ticks, and who observes --------------------------------------------------------------

    def followers(self) -> dict[int, int]:
        """Return the users with following clients, each with its account."""
        with self._lock:
            return {one.uid: one.account for one in self.clients.values() if one.follows}

    def is_joined(self) -> bool:
        """True if a client needs the known facts and has room for them."""
        with self._lock:
            return any(client.joining and not client.waiting_bytes for client in self.clients.values())

    def joining(self, uid: int) -> bool:
        """The same for a user's clients."""
        with self._lock:
            clients = [one for one in self.clients.values() if one.uid == uid]
            return any(client.joining and not client.waiting_bytes for client in clients)

    def count(self) -> int:
        return len(self.clients)

    @property
    def spent_s(self) -> float:
        """CPU time that clients have caused, in the threads that serve only them."""
        with self._lock:
            return thread_cpu_s(self._thread) + self._answers_s + sum(map(thread_cpu_s, self.answering))

    def publish(self, uid: int, messages: list[bytes], first: list[bytes]) -> None:
        """Hand a tick to a user's clients.

        Args:
            uid: The user.
            messages: The tick.
            first: Messages to precede a client's first tick; empty: no client can join.
        """
        size = sum(map(len, messages))
        with self._lock:
            clients = [one for one in self.clients.values() if one.follows and one.uid == uid]
            for client in clients:
                if client.joining and client.waiting_bytes == 0 and first:
                    if client.left_out:
                        self._put(client, wire.packed({"k": "dropped", "ticks": client.left_out}))
                    self._put(client, *first)
                    client.joining, client.left_out = False, 0
                elif client.joining:
                    client.left_out += client.left_out > 0
                elif client.waiting_bytes + size > MOST_WAITING:
                    client.joining, client.left_out = (
                        True,
                        1,
                    )  # it joins anew when it has read all pending data
                else:
                    self._put(client, *messages)
            self._make_room()
        self._wake()

    def leave_out(self, uid: int) -> None:
        """Skip a tick for a user: each client receives the known facts anew, and its number of missed
        ticks.
        """
        with self._lock:
            for client in self.clients.values():
                if client.follows and client.uid == uid:
                    client.left_out += client.left_out > 0 or not client.joining
                    client.joining = True

    def _make_room(self) -> None:
        """Bound the memory of all slow clients together."""
        slow = sorted(
            (client for client in self.clients.values() if client.uid != ROOT),
            key=lambda client: client.waiting_bytes,
        )
        most = sum(client.waiting_bytes for client in slow)
        while most > MOST_IN_ALL:
            client = slow.pop()
            most -= client.waiting_bytes
            _LOG.info("client %d has most pending of all: dropped", client.pid)
            with suppress(OSError):
                client.connection.shutdown(socket.SHUT_RDWR)  # the socket's thread then removes it
            client.waiting.clear()
            client.waiting_bytes, client.follows = 0, False

    def _put(self, client: Client, *messages: bytes) -> None:
        if client.waiting_bytes == 0:
            client.since = time.monotonic()
        client.waiting.extend(map(memoryview, messages))
        client.waiting_bytes += sum(map(len, messages))

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_out, b"x")

    def close(self, why: str) -> None:
        """Send all clients the end, for a moment only, and close their connections."""
        with self._lock:
            for client in self.clients.values():
                self._put(client, wire.packed({"k": "end", "text": why}))
                client.ending = True
        self._closed = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._listener.close()

    # -- the thread of the socket -------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            self._turns(1.0)
        ends = time.monotonic() + LAST_WORDS_S
        while self.clients and time.monotonic() < ends:
            self._turns(0.05)
        for client in list(self.clients.values()):
            self._drop(client)
        with self._lock:
            answering = dict(self.answering)
        for thread, answer in answering.items():
            thread.join(1.0)
            answer.abort()
        self._selector.close()
        os.close(self._wake_in)
        os.close(self._wake_out)

    def _turns(self, timeout_s: float) -> None:
        """Handle pending events, waiting at most a time."""
        self._arm()
        for key, events in self._selector.select(timeout_s):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj == self._wake_in:
                with suppress(OSError):
                    os.read(self._wake_in, _READ)
            else:
                self._turn(key.fd, events)
        self._drop_silent()

    def _arm(self) -> None:
        with self._lock:
            for descriptor, client in self.clients.items():
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.waiting else 0)
                if self._selector.get_key(descriptor).events != events:
                    self._selector.modify(descriptor, events)

    def _accept(self) -> None:
        time.sleep(self._comers.spend())  # 5 ms at most; connections wait in the kernel meanwhile
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(0.05)  # no descriptor is free, and the socket stays ready
            return
        connection.setblocking(False)
        try:
            pid, uid, _gid = wire.peer(connection)
        except OSError:
            connection.close()
            return
        uid = ROOT if uid == self._sees_all else uid
        account = self._subordinates.owner(uid)
        with self._lock:
            same = sum(client.account == account for client in self.clients.values())
            most = MOST_CLIENTS if uid == ROOT else MOST_CLIENTS - ROOTS
            full = len(self.clients) >= most or (uid != ROOT and same >= MOST_OF_ONE)
            client = Client(connection, uid, account, pid, time.monotonic())
            if full:
                text = "the daemon has its maximum number of clients: close some of them"
                with suppress(OSError):
                    connection.send(wire.packed({"k": "error", "text": text}))
                connection.close()
                return
            self.clients[connection.fileno()] = client
            self._selector.register(connection, selectors.EVENT_READ)

    def _turn(self, descriptor: int, events: int) -> None:
        client = self.clients.get(descriptor)
        if client is None:
            return
        try:
            if events & selectors.EVENT_READ and not self._heard(client):
                return
            if events & selectors.EVENT_WRITE:
                self._send(client)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._drop(client)

    def _heard(self, client: Client) -> bool:
        """Handle a client's messages; True if it is still a client here."""
        data = client.connection.recv(_READ)
        if not data:
            self._drop(client)
            return False
        try:
            for message in client.incoming.feed(data):
                if client.follows or client.ending:
                    raise wire.WireError("one request per connection")
                return self._serve(client, message)
        except wire.WireError as error:
            self._refuse(client, str(error))
        return True

    def _serve(self, client: Client, message: dict[str, Any]) -> bool:
        if message.get("gputop") != wire.VERSION:
            text = f"this daemon speaks version {wire.VERSION}: use the same version of gputop"
            self._refuse(client, text)
            return True
        request = message.get("ask")
        if request == "follow":
            with self._lock:
                client.follows = client.joining = True
        elif request == "status":
            self._send_status(client)
        elif isinstance(request, str) and request in self.answers:
            return self._hand_over(client, request, message)
        else:
            self._refuse(client, "the daemon does not know this request: use the same version of gputop")
        return True

    def _send_status(self, client: Client) -> None:
        if refusal := self._owed(client):
            self._refuse(client, refusal)
            return
        begun_s = time.thread_time()
        data = wire.packed({"k": "status", "data": self._status(client.uid)})
        with self._lock:
            self._spend(client.account, time.thread_time() - begun_s)
            self._put(client, data)
            client.ending = True

    def _hand_over(self, client: Client, request: str, message: dict[str, Any]) -> bool:
        if refusal := self._refusal(client):
            self._refuse(client, refusal)
            return True
        answering = Answering(client.connection, client.account)
        thread = threading.Thread(
            target=self._answer, args=(client, answering, request, message), name="gputop-answer", daemon=True
        )
        with self._lock:
            self._selector.unregister(client.connection)
            del self.clients[client.connection.fileno()]
            self.answering[thread] = answering
            thread.start()
        return False

    def _owed(self, client: Client) -> str:
        """Return why an expensive request of a user beyond the rate limit is refused; "" within it."""
        if client.uid == ROOT:
            return ""
        with self._lock:
            self._owing = {whose: pace for whose, pace in self._owing.items() if not pace.is_rested}
            owing = self._owing.get(client.account)
            owed_s = owing.owed_s() if owing is not None else 0.0
        return f"rate limit for this user: try again in {math.ceil(owed_s)} s" if owed_s else ""

    def _spend(self, account: int, cost_s: float) -> None:
        self._owing.setdefault(account, RateLimiter(*ANSWERING)).spend(cost_s)

    def _refusal(self, client: Client) -> str:
        """Return why a request that needs a thread is refused now, or ""."""
        if client.uid == ROOT:
            return ""
        if refusal := self._owed(client):
            return refusal
        with self._lock:
            others = [one for one in self.answering.values() if one.account != ROOT]
        if any(one.account == client.account for one in others):
            return "the daemon is busy with a request of this user: try again later"
        if len(others) >= ANSWERS:
            slowest = max(others, key=lambda one: one.waited_s)
            if slowest.waited_s < ABORTABLE_S:
                return "the daemon is busy: try again in a moment"
            slowest.abort()
        return ""

    def _answer(self, client: Client, answering: Answering, request: str, message: dict[str, Any]) -> None:
        try:
            self.answers[request](answering, client.uid, message)
        except OSError:
            pass  # disconnected, or too slow
        except Exception:
            _LOG.exception("a client's request")
            with suppress(OSError):
                answering.sendall(
                    wire.packed({"k": "error", "text": "the daemon could not answer: see its log"})
                )
        finally:
            client.connection.close()
            with self._lock:
                del self.answering[threading.current_thread()]
                cost_s = time.thread_time()
                self._answers_s += cost_s
                self._spend(client.account, cost_s)

    def _refuse(self, client: Client, text: str) -> None:
        with self._lock:
            client.follows = False
            self._put(client, wire.packed({"k": "error", "text": text}))
            client.ending = True

    def _send(self, client: Client) -> None:
        with self._lock:
            while client.waiting:
                part = client.waiting[0]
                sent = client.connection.send(part)
                client.since = time.monotonic()
                client.waiting_bytes -= sent
                if sent < len(part):
                    client.waiting[0] = part[sent:]
                    return
                client.waiting.popleft()
            if client.ending:
                self._drop(client)

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for client in list(self.clients.values()):
            active = client.follows or client.ending
            if (not active and now - client.since > SILENT_S) or (
                client.waiting and now - client.since > STUCK_S
            ):
                _LOG.info("client %d is silent: dropped", client.pid)
                self._drop(client)

    def _drop(self, client: Client) -> None:
        with self._lock:
            if self.clients.pop(client.connection.fileno(), None) is not None:
                self._selector.unregister(client.connection)
                client.connection.close()
