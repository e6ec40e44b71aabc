"""What goes over the daemon's socket: any bytes are taken within bounds, whole messages come out whole."""

from __future__ import annotations

import errno
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.errors import CommandError
from gputop.serve.clients import hub, wire
from gputop.serve.clients.client import RemoteSource, request_once
from gputop.serve.clients.listening import listen
from probes.source import MARK, PROBLEM, Sample
from replay.coding.chunker import Chunker
from tests.items import HEADER, START
from tests.waiting import HANGS_S, wait_until


@given(st.binary(max_size=2000), st.integers(1, 50))
def test_any_bytes_become_messages_or_one_sentence(data: bytes, step: int) -> None:
    incoming = wire.Incoming(500)
    try:
        for at in range(0, len(data), step):
            for message in incoming.feed(data[at : at + step]):
                assert isinstance(message, dict)
    except wire.WireError:
        pass


@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.integers(0, 9) | st.binary(max_size=50), max_size=4)),
    st.integers(1, 60),
)
def test_messages_come_out_as_they_went_in_however_they_are_cut(
    messages: list[dict[str, Any]], step: int
) -> None:
    data = b"".join(map(wire.packed, messages))
    incoming = wire.Incoming(1 << 16)
    found = [one for at in range(0, len(data), step) for one in incoming.feed(data[at : at + step])]
    assert found == messages


def test_a_message_that_is_too_long_is_refused_before_it_is_there() -> None:
    with pytest.raises(wire.WireError, match="the limit is 100"):
        list(wire.Incoming(100).feed((101).to_bytes(4, "big")))


def _tick(number: int) -> list[bytes]:
    chunks: list[bytes] = []
    chunker = Chunker(lambda kind, first, last, count, chunk: chunks.append(chunk))
    chunker.write(Sample("fill", START, {"text": str(number) * 200_000, "x": [number] * 1000}))
    chunker.write(Sample(MARK, START + number, {"number": number}))
    return list(wire.messages_of(chunks))


@pytest.fixture
def served(tmp_path: Any) -> Any:
    path = str(tmp_path / "s")
    made = hub.Hub(listen(path).socket, lambda uid: {"uid": uid}, {})
    made.start()
    yield made, path
    made.close("over")


def _marks(message: dict[str, Any]) -> list[int]:
    items = wire.items_of(message.get("chunks", b""))
    return [item.data["number"] for item in items if isinstance(item, Sample) and item.kind == MARK]


def _first() -> list[bytes]:
    return [wire.packed({"k": "header", "data": HEADER})]


@pytest.mark.slow
def test_a_client_that_is_too_slow_is_told_what_was_left_out_and_goes_on(
    served: tuple[hub.Hub, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, path = served
    monkeypatch.setattr(hub, "MOST_WAITING", 3000)
    client = socket.socket(socket.AF_UNIX)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    client.connect(path)
    client.sendall(wire.packed({"gputop": wire.VERSION, "ask": "follow"}))
    wait_until(lambda: made.followers(), "a follower")
    (uid,) = made.followers()
    for number in range(400):  # more than sockets hold: none of it waits for the client
        made.publish(uid, _tick(number), _first())
    incoming, marks, dropped, headers = wire.Incoming(wire.MOST_MESSAGE), list[int](), 0, 0
    client.settimeout(0.2)
    published = 400
    while headers < 2 or not marks or marks[-1] != published - 1:  # until it has caught up
        assert published < 800
        made.publish(uid, _tick(published), _first())
        published += 1
        try:
            while data := client.recv(1 << 20):
                for message in incoming.feed(data):
                    dropped += message.get("ticks", 0) if message["k"] == "dropped" else 0
                    headers += message["k"] == "header"
                    marks += _marks(message)
        except TimeoutError:
            pass
    client.close()
    assert dropped > 0
    assert headers >= 2  # it is told again what is known
    assert marks == sorted(marks)
    assert len(marks) + dropped + headers == published


def test_a_source_over_the_socket_yields_what_was_published_and_says_how_it_ended(
    served: tuple[hub.Hub, str],
) -> None:
    made, path = served
    threading.Thread(target=_publish, args=(made, 5), daemon=True).start()
    source = RemoteSource(path)
    assert source.header == HEADER
    items = source.items()
    marks = [
        item for item in (next(items) for _ in range(6)) if isinstance(item, Sample) and item.kind == MARK
    ]
    assert [mark.data["number"] for mark in marks] == [1, 2, 3]
    source.close()
    assert all(isinstance(item, Sample) for item in items)  # what came before, and then an end


def test_a_daemon_that_ends_before_its_first_word_is_reported_to_have_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(path)
        daemon.listen()

        def hear_and_end() -> None:
            client, _ = daemon.accept()
            with client:
                client.recv(1 << 10)

        thread = threading.Thread(target=hear_and_end)
        thread.start()
        with pytest.raises(CommandError, match="ended without an answer"):
            RemoteSource(path)
        thread.join()


def _publish(made: hub.Hub, count: int) -> None:
    wait_until(lambda: made.followers(), "a follower")
    (uid,) = made.followers()
    for number in range(count):
        made.publish(uid, _tick(number), _first())


@pytest.mark.slow
def test_clients_are_told_of_the_end_also_where_nothing_was_to_be_told_for_a_while(
    served: tuple[hub.Hub, str],
) -> None:
    made, path = served
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendall(wire.packed({"gputop": wire.VERSION, "ask": "follow"}))
    wait_until(lambda: made.followers(), "a follower")
    time.sleep(hub.LAST_WORDS_S + 0.3)  # its thread sleeps now, for a second
    made.close("over")
    client.settimeout(HANGS_S)
    said = [message for data in iter(lambda: client.recv(1 << 16), b"") for message in _read(data)]
    assert said == [{"k": "end", "text": "over"}]
    client.close()


def _read(data: bytes) -> list[dict[str, Any]]:
    return list(wire.Incoming(wire.MOST_MESSAGE).feed(data))


def test_one_user_cannot_take_all_places(
    served: tuple[hub.Hub, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, path = served
    monkeypatch.setattr(hub, "MOST_CLIENTS", 3)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    for client in clients:
        client.connect(path)
    clients[3].settimeout(HANGS_S)
    (message,) = wire.Incoming(1 << 16).feed(clients[3].recv(1 << 16))
    assert message["k"] == "error"
    for client in clients:
        client.close()
    wait_until(lambda: made.count() == 0, "the end of each client")
    assert request_once(path, "status")["data"]["uid"] >= 0


@pytest.mark.slow
def test_who_says_nothing_is_let_go(served: tuple[hub.Hub, str], monkeypatch: pytest.MonkeyPatch) -> None:
    _made, path = served
    monkeypatch.setattr(hub, "SILENT_S", 0.1)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.settimeout(HANGS_S)
        assert client.recv(1) == b""


def test_a_second_daemon_does_not_take_the_socket_of_one_that_answers(served: tuple[hub.Hub, str]) -> None:
    with pytest.raises(OSError, match="in use"):
        listen(served[1])


def test_the_usual_folder_lets_everybody_through_and_a_folder_of_somebody_s_choice_stays(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, chosen = tmp_path / "usual", tmp_path / "chosen"
    monkeypatch.setattr(wire, "SOCKET", str(usual / "s"))
    for folder in (usual, chosen):
        folder.mkdir(mode=0o700)  # as gputop makes it where perf's probes take turns
        listen(str(folder / "s")).close()
    assert [folder.stat().st_mode & 0o777 for folder in (usual, chosen)] == [0o755, 0o700]


def test_who_may_not_reach_the_socket_is_not_told_that_there_is_no_daemon(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_socket: socket.socket, _path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refused)
    with pytest.raises(CommandError, match=r"may not reach .* not known whether"):
        request_once(str(tmp_path / "s"), "status")


def test_a_question_that_is_not_known_is_a_sentence(served: tuple[hub.Hub, str]) -> None:
    with pytest.raises(CommandError, match="does not know"):
        request_once(served[1], "make coffee")


def test_dropped_ticks_are_a_problem_on_the_screen(served: tuple[hub.Hub, str]) -> None:
    source = RemoteSource.__new__(RemoteSource)
    (told,) = source.items_of({"k": "dropped", "ticks": 7})
    assert isinstance(told, Sample)
    assert (told.kind, "7 ticks" in told.data["text"]) == (PROBLEM, True)
