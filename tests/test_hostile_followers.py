"""Clients of the daemon, however many and however slow: who observes goes on, and others are served."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.analysis.live import LiveExplainer
from gputop.errors import CommandError
from gputop.serve import daemon as daemon_module
from gputop.serve import flight_recorder
from gputop.serve.clients import answering, hub, showing, wire
from gputop.serve.clients.client import request_once
from gputop.serve.clients.listening import listen
from gputop.serve.clients.showing import KnownAtMark, Showing, ShownTick
from gputop.serve.daemon import Daemon
from gputop.serve.flight_recorder import Keeper, KeepLimits
from gputop.serve.service import Service, Settings
from probes.proc.subordinate import Subordinates
from probes.schema import join
from probes.source import MARK, OTHERS, Item, Sample
from replay.past.history import History
from replay.state_snapshot import FactBook
from tests import items as made
from tests.items import HEADER, MS, SECOND, START
from tests.waiting import until_good, wait_until

FOLLOWERS = 110
ANSWER_S = 60.0
DONE = wire.packed({"k": "done"})


class Users:
    """The peer by the kernel: one user after the other; the daemon itself stays root's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.next = 1000
        monkeypatch.setattr(wire, "peer", self._peer)

    def _peer(self, _connection: socket.socket) -> tuple[int, int, int]:
        return 1, self.next if threading.current_thread().name == "gputop-socket" else 0, 0


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> Users:
    return Users(monkeypatch)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Service, str]]:
    path = str(tmp_path / "s")
    listening = listen(path)
    one = Service(HEADER, listening.socket, Settings("test", history_bytes=4 << 20), lambda why: None)
    one.start()
    yield one, path
    one.close("over")
    listening.close()


def _tick(number: int, processes: int = 200) -> Iterator[Item]:
    """A second of many processes, each somebody's."""
    end = START + number * SECOND
    if number == 1:
        for pid in range(1, processes + 1):
            yield made.process(
                pid, uid=1000 + pid % FOLLOWERS, watched=True, name="x" * 15, command="y" * 100
            )
    yield join([made.call(end - MS + at, 5, pid=1 + at % processes, tid=at + 1) for at in range(2000)])
    yield Sample(MARK, end, {"number": number, "lost": {}})


def _follow(path: str, stack: ExitStack) -> socket.socket:
    client = stack.enter_context(socket.socket(socket.AF_UNIX))
    client.connect(path)
    with suppress(BrokenPipeError):  # it was refused already
        client.sendall(wire.packed({"gputop": wire.VERSION, "ask": "follow"}))
    return client


def _observe(service: Service, first: int, count: int) -> float:
    """CPU seconds of the thread that observes."""
    begun = time.thread_time()
    for number in range(first, first + count):
        for item in _tick(number):
            service.consume(item)
    return time.thread_time() - begun


@pytest.mark.timed
def test_a_hundred_users_who_follow_cost_the_thread_that_observes_nothing(
    service: tuple[Service, str], users: Users
) -> None:
    """Each of them had its tick packed there: with 110 of them marks were four seconds old."""
    one, path = service
    _observe(one, 1, 3)
    alone = min(_observe(one, at, 2) for at in (4, 6, 8))
    with ExitStack() as stack:
        for _ in range(FOLLOWERS):
            count = len(one.hub.followers())
            _follow(path, stack)
            wait_until(lambda: len(one.hub.followers()) > count, "a follower")  # noqa: B023
            users.next += 1
        followed = min(_observe(one, at, 2) for at in (10, 12, 14))
        assert followed < 2 * alone + 0.02
        wait_until(lambda: one.showing.spent_s > 10 * alone, "the ticks")


@pytest.mark.timed
def test_what_followers_and_answers_cost_is_not_what_observing_costs(
    service: tuple[Service, str], users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor while it goes on: an answer was subtracted at its end, when the daemon had given something up."""
    one, path = service
    ends = threading.Event()

    def work(_connection: Any, _uid: int, _message: dict[str, Any]) -> None:
        while not ends.is_set():
            pass

    monkeypatch.setitem(one.hub.answers, "snap", work)
    with ExitStack() as stack:
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(path)
        _follow(path, stack)
        client.sendall(wire.packed({"gputop": wire.VERSION, "ask": "snap"}))
        wait_until(lambda: one.hub.answering and one.hub.followers(), "both")

        def part() -> float:
            before, all_before = one.observing_s(), time.process_time()
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                time.sleep(0.05)
            return (one.observing_s() - before) / (time.process_time() - all_before)

        assert until_good(part, lambda part: part < 0.2) < 0.2
        ends.set()


# -- what following may cost ---------------------------------------------------------------------------


class _Hub:
    """Notes who is shown a tick."""

    def __init__(self, accounts: dict[int, int]) -> None:
        self.accounts = accounts
        self.shown: list[int] = []
        self.left_out: list[int] = []
        self.spent_s = 0.0  # CPU time: a millisecond each

    def followers(self) -> dict[int, int]:
        return self.accounts

    def joining(self, uid: int) -> bool:
        return uid in self.accounts

    def publish(self, uid: int, _messages: list[bytes], _first: list[bytes]) -> None:
        self.shown.append(uid)
        self.spent_s += 0.001

    def leave_out(self, uid: int) -> None:
        self.left_out.append(uid)


def _handed_over(number: int) -> ShownTick:
    items = list(_tick(number))
    sums = Sample(OTHERS, items[-1].time_ns if isinstance(items[-1], Sample) else 0, {"pid": []})
    return ShownTick(items, sums, KnownAtMark(FactBook(), {}))


@pytest.mark.slow
def test_what_following_costs_is_bounded_and_who_cost_least_is_shown_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(showing, "FOLLOWING", (0.01, 0.01))
    clock = [100.0]
    others = _Hub({0: 0, **{uid: uid for uid in range(1000, 1100)}})
    monkeypatch.setattr(showing.time, "thread_time", lambda: others.spent_s)  # no machine is too fast or slow
    one = Showing(HEADER, others, lambda: clock[0])
    one.show(_handed_over(1))
    assert others.shown[0] == 0  # root is
    assert 1 < len(others.shown) < 100
    assert len(others.shown) + len(others.left_out) == 101
    seen = set(others.shown)
    for number in range(2, 40):
        others.shown.clear()
        clock[0] += 1.0
        one.show(_handed_over(number))
        assert len(others.shown) > 1
        seen.update(others.shown)
    assert seen == set(others.accounts)  # everybody has a turn


def test_ticks_that_pile_up_are_left_out_but_whose_a_process_is_stays_known() -> None:
    others = _Hub({1001: 1001})
    one = Showing(HEADER, others)
    one.show(_handed_over(1), late=True)
    assert (others.shown, others.left_out) == ([], [1001])
    assert one.owners.of(1) == 1001
    for number in range(2, 2 + showing.BEHIND + 2):
        one.put(_handed_over(number))
    one.start()
    wait_until(lambda: len(others.shown) == showing.BEHIND, "the last ones")
    one.close()
    assert others.left_out == [1001] * 3


@pytest.mark.slow
def test_where_showing_hangs_little_is_kept_and_nobody_is_shown_what_was_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process ended in a tick that was dropped, and its number is another user's since."""
    others = _Hub({1001: 1001, 1002: 1002})
    one = Showing(HEADER, others)
    one.show(_handed_over(1))
    assert one.owners.of(1) == 1001
    facts = FactBook()
    facts.consume(made.process(1, uid=1002, watched=True))
    for number in range(2, 4 * showing.MOST_BEHIND):
        one.put(replace(_handed_over(number), known=KnownAtMark(facts, {}) if number % 2 else None))
        assert len(one.ticks) <= showing.MOST_BEHIND
    seen: list[int] = []
    monkeypatch.setattr(one, "show_to", lambda uid, *_: seen.append(one.owners.of(1)))
    one.start()
    wait_until(lambda: len(seen) == 2 * showing.BEHIND, "the last ones")
    one.close()
    assert set(seen) == {1002}


@pytest.mark.slow
def test_what_is_known_is_looked_up_once_a_tick_and_seldom_where_that_costs_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon_module, "LOOKING_UP", (0.001, 0.3))
    ticks: list[ShownTick] = []
    history = History(HEADER)
    daemon = Daemon(HEADER, history, LiveExplainer(HEADER), joining=lambda: True, put=ticks.append)
    really = history.facts

    def slow(*, now: bool) -> FactBook:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.1:
            pass
        return really(now=now)

    monkeypatch.setattr(history, "facts", slow)
    for number in range(1, 12):
        for item in _tick(number, 3):
            daemon.consume(item)
    known = [tick.known is not None for tick in ticks]
    assert known[0]
    assert sum(known) < 9
    assert daemon.requests_s >= 0.1 * sum(known)


# -- the socket ----------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[hub.Hub, str]]:
    def past(connection: answering.Answering, _uid: int, _message: dict[str, Any]) -> None:
        for _ in range(64):
            connection.sendall(bytes(1 << 16))
        connection.sendall(DONE)

    path = str(tmp_path / "s")
    one = hub.Hub(listen(path).socket, lambda uid: {"uid": uid}, {"snap": past})
    one.start()
    yield one, path
    one.close("over")


def _slow(path: str, stack: ExitStack) -> socket.socket:
    """One that asks for the past and reads none of it."""
    client = stack.enter_context(socket.socket(socket.AF_UNIX))
    client.connect(path)
    client.sendall(wire.packed({"gputop": wire.VERSION, "ask": "snap"}))
    return client


def test_slow_readers_of_the_past_keep_nobody_else_out(served: tuple[hub.Hub, str], users: Users) -> None:
    one, path = served
    with ExitStack() as stack:
        for place in range(hub.ANSWERS):
            _slow(path, stack)
            wait_until(lambda: len(one.answering) > place, "an answer")  # noqa: B023
            users.next += 1
        time.sleep(answering.ABORTABLE_S)
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.settimeout(answering.WAITS_S / 2)
        client.connect(path)
        client.sendall(wire.packed({"gputop": wire.VERSION, "ask": "snap"}))
        got = 0
        while data := client.recv(1 << 16):
            got += len(data)
        assert got == (64 << 16) + len(DONE)


@pytest.mark.slow
def test_who_reads_an_answer_drop_by_drop_has_one_time_for_all_of_it(
    served: tuple[hub.Hub, str], users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, path = served
    monkeypatch.setattr(answering, "WAITS_S", 1.0)
    with ExitStack() as stack:
        client = _slow(path, stack)
        wait_until(lambda: one.answering, "an answer")
        begun = time.monotonic()
        while one.answering and time.monotonic() - begun < 15:
            client.recv(4096)  # 1,024 of these are requested, each within its time
            time.sleep(0.02)
        assert time.monotonic() - begun < 15


def test_what_waits_for_slow_readers_is_bounded_however_many_users_they_are(
    served: tuple[hub.Hub, str], users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, path = served
    monkeypatch.setattr(hub, "MOST_IN_ALL", 10 << 20)
    tick = [bytes(1 << 20)]
    with ExitStack() as stack:
        for _ in range(20):
            count = len(one.followers())
            _follow(path, stack)
            wait_until(lambda: len(one.followers()) > count, "a follower")  # noqa: B023
            users.next += 1
        for _ in range(6):
            for uid in one.followers():
                one.publish(uid, tick, tick)
            assert sum(client.waiting_bytes for client in one.clients.values()) <= 10 << 20


# -- a user with thousands of user ids -----------------------------------------------------------------


def _owned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All ids from 100,000 on are user 1000's."""
    file = tmp_path / "subuid"
    file.write_text("1000:100000:65536\nnosuchuser:300000:65536\nroot:0:99\n7:x:y\n\n8:400000:65536:1\n")

    def read_it() -> Subordinates:
        return Subordinates(str(file))

    monkeypatch.setattr(hub, "Subordinates", read_it)
    monkeypatch.setattr(flight_recorder, "Subordinates", read_it)


def test_ids_for_containers_are_those_of_who_has_them(tmp_path: Path) -> None:
    file = tmp_path / "subuid"
    owners = Subordinates(str(file))
    assert owners.owner(100_000) == 100_000
    file.write_text(f"{os.getuid()}:100000:65536\nroot:200000:10\n1001:1:0\n1001:0:70000\n")
    assert [owners.owner(uid) for uid in (0, 1000, 99_999, 165_536)] == [0, 1000, 99_999, 165_536]
    assert [owners.owner(uid) for uid in (100_000, 165_535)] == [os.getuid()] * 2
    assert owners.owner(200_009) == 0
    file.write_text("1001:100000:1\n")
    assert [owners.owner(uid) for uid in (100_000, 100_001)] == [1001, 100_001]
    file.unlink()
    assert owners.owner(100_000) == 100_000


def test_ids_for_containers_have_one_users_places(
    users: Users, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _owned(monkeypatch, tmp_path)
    path = str(tmp_path / "s")
    one = hub.Hub(listen(path).socket, lambda uid: {"uid": uid}, {})
    one.start()
    try:
        with ExitStack() as stack:
            for place in range(hub.MOST_OF_ONE + 1):
                users.next = 1000 if place == 0 else 100_000 + place
                client = _follow(path, stack)
                client.settimeout(ANSWER_S)
                if place < hub.MOST_OF_ONE:
                    wait_until(lambda: users.next in one.followers(), "a follower")
                else:
                    assert b"maximum number of clients" in client.recv(4096)
            assert set(one.followers().values()) == {1000}
            users.next = 1001
            assert request_once(path, "status")["data"]["uid"] == 1001
    finally:
        one.close("over")


def test_who_asks_for_the_status_without_end_has_to_wait(
    users: Users, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def costly(uid: int) -> dict[str, Any]:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.02:
            pass
        return {"uid": uid}

    _owned(monkeypatch, tmp_path)
    monkeypatch.setattr(hub, "ANSWERING", (0.001, 0.05))
    path = str(tmp_path / "s")
    one = hub.Hub(listen(path).socket, costly, {})
    one.start()
    try:
        refused = 0
        for users.next in range(100_000, 100_010):
            try:
                request_once(path, "status")
            except CommandError as error:
                refused += "rate limit for this user" in str(error)
        assert refused > 3
        for users.next in (1001, 0):
            assert request_once(path, "status")["data"]["uid"] == users.next
    finally:
        one.close("over")


def test_sessions_of_ids_for_containers_do_not_drive_out_those_of_another_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of them held one, and the oldest of who holds most went: the victim's, who held two."""
    _owned(monkeypatch, tmp_path)
    kept = Keeper(_NO_DAEMON, str(tmp_path / "kept"), KeepLimits(most_bytes=5000))
    for number, uid in enumerate([2000, 2000, 100_001, 100_002, 100_003]):
        path = tmp_path / "kept" / f"20260101-00000{number}-slow-step-{uid}.msgpack"
        path.write_bytes(bytes(1000))
        os.utime(path, (number, number))
    paths = {
        f"20260101-00000{number}": uid for number, uid in enumerate([2000, 2000, 100_001, 100_002, 100_003])
    }
    really: Callable[[], list[tuple[str, int, int, int]]] = kept.files

    def files() -> list[tuple[str, int, int, int]]:
        rows = really()
        return [(path, paths[os.path.basename(path)[:15]], size, at) for path, _, size, at in rows]

    monkeypatch.setattr(kept, "files", files)
    kept.make_room()
    assert [uid for _, uid, _, _ in files()] == [2000, 2000, 100_002, 100_003]


_NO_DAEMON: Any = None


def test_who_is_refused_before_a_word_was_said_hears_why(
    users: Users, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub, "MOST_OF_ONE", 0)
    path = str(tmp_path / "s")
    one = hub.Hub(listen(path).socket, lambda uid: {"uid": uid}, {})
    one.start()
    try:
        for _ in range(20):  # whoever is first, the daemon's end or the question
            with pytest.raises(CommandError, match="number of clients"):
                request_once(path, "status")
    finally:
        one.close("over")
