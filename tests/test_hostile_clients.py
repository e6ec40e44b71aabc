"""Who asks the daemon too often, or says nothing: others are served, and what it costs is bounded."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gputop.errors import CommandError
from gputop.serve.clients import hub, wire
from gputop.serve.clients.client import request_once
from gputop.serve.clients.listening import listen
from gputop.serve.rate_limit import RateLimiter
from tests.conftest import needed
from tests.waiting import until_good

ANSWER_S = 60.0  # far longer than an answer takes on a busy machine


class _Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_first_lot_is_there_at_once_and_then_so_much_a_second() -> None:
    clock = _Clock()
    pace = RateLimiter(10.0, 5.0, clock)
    assert [pace.spend() for _ in range(5)] == [0.0] * 5
    assert pace.spend(2.0) == pytest.approx(0.2)
    clock.now += 0.1
    assert pace.owed_s() == pytest.approx(0.1)
    assert not pace.is_rested
    clock.now += 1000.0
    assert pace.is_rested
    assert [pace.spend(), pace.spend(5.0)] == pytest.approx([0.0, 0.1])  # no more than one lot comes back


# -- the socket ----------------------------------------------------------------------------------------


@pytest.fixture
def told() -> list[int]:
    """Whose questions were answered."""
    return []


@pytest.fixture
def served(tmp_path: Path, told: list[int]) -> Iterator[tuple[hub.Hub, str]]:
    def past(connection: socket.socket, uid: int, message: dict[str, Any]) -> None:
        begun = time.thread_time()
        while time.thread_time() - begun < message.get("cpu_s", 0.0):
            pass
        told.append(uid)
        connection.sendall(wire.packed({"k": "done"}))

    path = str(tmp_path / "s")
    made = hub.Hub(listen(path).socket, lambda uid: {"uid": uid}, {"snap": past})
    made.start()
    yield made, path
    made.close("over")


class _Users:
    """The peer by the kernel: one user after the other, for clients the daemon is always root's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
        self.next = first
        monkeypatch.setattr(wire, "peer", self._peer)

    def _peer(self, connection: socket.socket) -> tuple[int, int, int]:
        return 1, self.next if threading.current_thread().name == "gputop-socket" else 0, 0


def test_however_many_users_come_there_is_a_place_for_root(
    served: tuple[hub.Hub, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, path = served
    users = _Users(monkeypatch, 1000)
    monkeypatch.setattr(hub, "MOST_CLIENTS", 12)
    with ExitStack() as stack:
        for place in range(12):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(ANSWER_S)
            client.connect(path)
            if place < 12 - hub.ROOTS:
                client.sendall(wire.packed({"gputop": wire.VERSION, "ask": "follow"}))
                _until(lambda: users.next in made.followers())
            else:
                assert b"maximum number of clients" in client.recv(4096)
            users.next += 1
        users.next = 0
        assert request_once(path, "status")["data"]["uid"] == 0


@pytest.mark.slow
def test_who_lets_the_daemon_work_too_much_has_to_wait_and_root_has_not(
    served: tuple[hub.Hub, str], monkeypatch: pytest.MonkeyPatch, told: list[int]
) -> None:
    _, path = served
    users = _Users(monkeypatch, 1000)
    monkeypatch.setattr(hub, "ANSWERING", (0.001, 0.05))
    assert request_once(path, "snap", cpu_s=0.2)["k"] == "done"
    _settle()
    with pytest.raises(CommandError, match=r"try again in \d+ s"):
        _ask_again(path)
    for users.next in (1001, 0, 0):  # another one, and root
        assert request_once(path, "snap", cpu_s=0.2)["k"] == "done"
        _settle()
    assert told == [1000, 1001, 0, 0]


def test_what_clients_cost_is_known(served: tuple[hub.Hub, str]) -> None:
    made, path = served
    request_once(path, "snap", cpu_s=0.2)
    _until(lambda: made.spent_s >= 0.2)


@pytest.mark.slow
def test_who_connects_without_end_costs_a_small_part_of_a_core(served: tuple[hub.Hub, str]) -> None:
    made, path = served
    first, a_second = hub.COMERS[1], hub.COMERS[0]
    waiting = 64 + 2  # in the kernel, and in somebody's hands

    def part_of_a_core() -> float:
        begun, cost, clients = time.monotonic(), made.spent_s, 0
        while time.monotonic() - begun < 2.0:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
            clients += 1
        took = time.monotonic() - begun
        assert clients <= first + a_second * took + waiting
        return (made.spent_s - cost) / took

    assert until_good(part_of_a_core, lambda part: part < 0.5) < 0.5


def _ask_again(path: str) -> None:
    """Until the daemon is done with the answer before."""
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        try:
            request_once(path, "snap")
        except CommandError as error:
            if "already" not in str(error):
                raise
    raise AssertionError("it is never done")


def _settle() -> None:
    """Until no answer is given any more."""
    _until(lambda: not any(thread.name == "gputop-answer" for thread in threading.enumerate()))


def _until(condition: Any) -> None:
    deadline = time.monotonic() + ANSWER_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# -- metrics -------------------------------------------------------------------------------------------


@pytest.fixture
def metrics() -> Iterator[Any]:
    http = needed("gputop.serve.metrics.metrics_http")
    started: list[Any] = []

    def make(registry: Any) -> Any:
        server = http.MetricsServer(http.Address("127.0.0.1", 0), registry, lambda: True)
        server.start()
        started.append(server)
        return server

    yield make
    for server in started:
        server.stop()


def _get(server: Any, path: str, accept: str = "") -> bytes:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.server_address[1]}{path}", headers={"Accept": accept}
    )
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        body: bytes = answer.read()
        return body


def test_connections_that_say_nothing_keep_nobody_out_however_many_there_are(metrics: Any) -> None:
    client = needed("prometheus_client")
    server = metrics(client.CollectorRegistry())
    with ExitStack() as stack:
        for _ in range(100):
            address = ("127.0.0.1", server.server_address[1])
            one = stack.enter_context(socket.create_connection(address))
            one.sendall(b"GET /healthz HT")
        assert _get(server, "/healthz") == b""  # who watches over the daemon would start it anew
        assert _get(server, "/metrics") == b""


class _Costly:
    """Metrics that cost much to make."""

    def __init__(self) -> None:
        self.made = 0

    def describe(self) -> tuple[()]:
        return ()

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        self.made += 1
        begun = time.thread_time()
        while time.thread_time() - begun < 0.1:
            pass
        yield GaugeMetricFamily("made", "How often.", value=self.made)


@pytest.mark.slow
def test_who_asks_for_metrics_without_end_is_told_the_same_again(
    metrics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, http = needed("prometheus_client"), needed("gputop.serve.metrics.metrics_http")
    monkeypatch.setattr(http, "MAKING", (0.001, 0.3))
    costly = _Costly()
    registry = client.CollectorRegistry()
    registry.register(costly)
    server = metrics(registry)
    kinds = ["", "application/openmetrics-text;version=1.0.0", "text/plain;version=1.0.0;escaping=dots"]
    bodies = [_get(server, "/metrics", kinds[turn % 3]) for turn in range(30)]
    assert 3 <= costly.made <= 5
    assert all(b"made" in body for body in bodies)
    _until(lambda: server.spent_s >= 0.3)
