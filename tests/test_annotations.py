"""Annotations: anybody's messages become ranges of the sender's own processes only, bounded and counted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.serve.clients.listening import listen
from probes.activities import activity_rows
from probes.inside import annotation_socket
from probes.inside.annotation_socket import AnnotationSocket, Bound, address_of, own_socket
from probes.inside.annotations import (
    AT_ONCE,
    LONGEST_NAME,
    MOST_BYTES,
    MOST_OPEN,
    Annotations,
    Datagram,
    message,
)
from probes.proc import procfs
from probes.source import ACTIVITY, PROBLEM, Sample
from tests.waiting import wait_until

ME, USER = os.getpid(), os.geteuid()
SECOND = 1_000_000_000


def rows_of(samples: list[Sample]) -> list[tuple[str, str, int, int, int, int]]:
    """(what, name, pid, tid, begin, end) of each."""
    found = []
    for sample in samples:
        if sample.kind == ACTIVITY:
            rows, texts = activity_rows(sample.data)
            for row in rows:
                numbers = (int(row[key]) for key in ("pid", "tid", "begin", "end"))
                found.append((texts[row["what"]], texts[row["name"]], *numbers))
    return found


def problems(samples: list[Sample]) -> list[str]:
    return [sample.data["text"] for sample in samples if sample.kind == PROBLEM]


def test_ranges_nest_on_threads_and_processes_and_marks_have_no_length() -> None:
    named, thread = Annotations(), threading.get_native_id()
    for at, act, name, more in (
        (10, "begin", "epoch 1", {}),
        (20, "begin", "step", {"thread": thread}),
        (25, "mark", "saved", {}),
        (30, "end", "step", {"thread": thread}),
        (40, "end", "", {}),
    ):
        named.consume(Datagram(message(act, name, **more), ME, USER, at))
    samples = list(named.at_mark(50, {ME}))
    assert sorted(rows_of(samples), key=lambda row: row[4]) == [
        ("span", "epoch 1", ME, -1, 10, 40),
        ("range", "step", ME, thread, 20, 30),
        ("span", "saved", ME, -1, 25, 25),
    ]
    assert named.rows_since_mark() == (3, 10)
    assert list(named.at_mark(60, {ME})) == []
    assert named.rows_since_mark() == (0, 0)


def test_several_lines_may_come_in_one_message() -> None:
    named = Annotations()
    named.consume(Datagram(message("begin", "a") + b"\n" + message("end", "a") + b"\n", ME, USER, 5))
    assert [row[1] for row in rows_of(list(named.at_mark(9, {ME})))] == ["a"]


def test_what_is_open_at_the_end_ends_there() -> None:
    named = Annotations()
    named.consume(Datagram(message("begin", "epoch"), ME, USER, 5))
    assert rows_of(list(named.at_mark(9, {ME}))) == []
    assert rows_of(list(named.at_mark(20, {ME}, last=True))) == [("span", "epoch", ME, -1, 5, 20)]


def test_a_range_of_an_ended_process_ends_with_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    named = Annotations()
    named.consume(Datagram(message("begin", "task"), child.pid, USER, 5))
    assert rows_of(list(named.at_mark(9, {child.pid}))) == []
    child.communicate(b"\n")
    assert rows_of(list(named.at_mark(20, set()))) == [("span", "task", child.pid, -1, 5, 20)]


IN_A_CONTAINER = """
import os, sys, threading
go = threading.Event()
other = threading.Thread(target=go.wait)
other.start()
print(os.getpid(), other.native_id, flush=True)
sys.stdin.readline()
go.set()
other.join()
print("alone", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes takes root")
@pytest.mark.parametrize("ended", ["thread", "process"])
def test_in_a_container_a_range_ends_by_a_message_that_is_read_after_its_thread_has_ended(ended: str) -> None:
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", IN_A_CONTAINER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as outside:
        assert outside.stdin is not None
        assert outside.stdout is not None
        first, second = map(int, outside.stdout.readline().split())
        (pid,) = procfs.descendants((outside.pid,))
        here = procfs.thread_numbers(pid)
        named = Annotations()
        for at, numbered in enumerate((first, second), 1):
            named.consume(Datagram(message("begin", f"of {numbered}", thread=numbered), pid, USER, at))
        print(file=outside.stdin, flush=True)
        assert outside.stdout.readline() == "alone\n"
        if ended == "process":
            outside.communicate("\n")
        for at, numbered in enumerate((first, second), 11):
            named.consume(Datagram(message("end", "", thread=numbered), pid, USER, at))
        samples = list(named.at_mark(50, {pid}))
        assert problems(samples) == []
        assert rows_of(samples) == [
            ("range", f"of {first}", pid, here[first], 1, 11),
            ("range", f"of {second}", pid, here[second], 2, 12),
        ]
        if ended == "thread":
            outside.communicate("\n")


def test_a_range_of_a_process_that_is_not_watched_is_told_of_its_watched_descendants() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        named = Annotations()
        named.consume(Datagram(message("begin", "job 7", pid=ME), ME, USER, 5))
        assert rows_of(list(named.at_mark(9, {child.pid, 1}))) == []
        named.consume(Datagram(message("end", "job 7", pid=ME), ME, USER, 30))
        assert rows_of(list(named.at_mark(40, {1}))) == [("span", "job 7", child.pid, -1, 5, 30)]
    finally:
        child.communicate(b"\n")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"\xff\x00", "not JSON"),
        (b"[" * 900, "not JSON"),
        (b"[]", "other keys"),
        (b'{"begin": "a", "end": "a"}', "other keys"),
        (b'{"begin": "a", "uid": 0}', "other keys"),
        (b'{"begin": 7}', "a name is not a text"),
        (b'{"begin": ""}', "a name is not a text"),
        (json.dumps({"begin": "x" * (LONGEST_NAME + 1)}).encode(), "a name is not a text"),
        (b'{"begin": "a", "thread": "7"}', "not a number"),
        (b'{"begin": "a", "thread": true}', "not a number"),
        (b'{"begin": "a", "pid": -1}', "not the number of a process"),
        (b'{"begin": "a", "unsent": -1}', "not a number"),
        (b'{"begin": "a", "unsent": 1.5}', "not a number"),
        (b'{"begin": "a", "pid": 99999999999999999999}', "not the number of a process"),
        (b'{"end": "never begun"}', "not begun"),
        (b"\n".join([b"{}"] * 99), "more than 16 lines"),
    ],
)
def test_what_is_no_annotation_is_refused_and_each_one_is_counted(said: bytes, why: str) -> None:
    named, counts = Annotations(), []
    for at in range(7):
        named.consume(Datagram(said, ME, USER or 1_000, at))
        texts = [text for text in problems(list(named.at_mark(at, {ME}, last=at == 6))) if why in text]
        counts += [int(text.rsplit(": ", 1)[1].split()[0]) for text in texts]
    assert counts == [1, 2, 4, 7], "a sentence where the count has doubled, and at the end"


def test_a_user_names_only_its_own_processes() -> None:
    named = Annotations()
    named.consume(Datagram(message("begin", "mine?", pid=1), ME, 4_242, 5))  # process 1 is root's
    assert rows_of(list(named.at_mark(9, {1}, last=True))) == []
    named.consume(Datagram(message("begin", "roots", pid=1), ME, 0, 5))
    assert [row[1] for row in rows_of(list(named.at_mark(9, {1}, last=True)))] == ["roots"]


def ended_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_of_whom_an_ended_sender_speaks_is_not_guessed() -> None:
    """In a container the number would be one of another process here."""
    named, gone = Annotations(), ended_process()
    named.consume(Datagram(message("begin", "task", pid=ME), gone, USER, 5))
    named.consume(Datagram(message("mark", "its own"), gone, USER, 6))
    samples = list(named.at_mark(9, {ME}, {gone: ME}, last=True))
    assert [row[1:4] for row in rows_of(samples)] == [("its own", gone, -1)]
    assert problems(samples) == [
        "a process names another one's ranges, and has ended before its message was read: "
        "1 annotations are left out"
    ]


def test_a_range_of_a_process_that_has_ended_ends_by_the_message_of_its_user() -> None:
    named, gone = Annotations(), ended_process()
    named.consume(Datagram(message("begin", "task"), gone, USER, 5))
    named.consume(Datagram(message("end", "task", pid=gone), ME, USER + 1, 6))
    named.consume(Datagram(message("end", "task", pid=gone), ME, USER, 7))
    samples = list(named.at_mark(9, {ME}, {gone: ME}))
    assert rows_of(samples) == [("span", "task", gone, -1, 5, 7)]
    assert len(problems(samples)) == 1, "another user's is refused"


def test_a_range_covers_descendants_that_have_ended_since_the_mark_before() -> None:
    named, (above, brief) = Annotations(), (ended_process(), ended_process())
    named.consume(Datagram(message("begin", "job 7"), ME, USER, 5))
    assert rows_of(list(named.at_mark(9, {1}, {above: ME, brief: above}))) == []
    named.consume(Datagram(message("end", "job 7"), ME, USER, 30))
    found = rows_of(list(named.at_mark(40, {1})))
    assert sorted(row[2] for row in found) == sorted((above, brief))


def test_a_flood_is_left_out_and_counted_and_others_go_on() -> None:
    named = Annotations()
    for _ in range(int(AT_ONCE) + 500):
        named.consume(Datagram(message("mark", "x"), ME, 1_000, 5))
    named.consume(Datagram(message("mark", "other"), ME, 1_001, 5))
    samples = list(named.at_mark(9, {ME}))
    names = [row[1] for row in rows_of(samples)]
    assert names.count("x") == AT_ONCE
    assert names.count("other") == 1
    assert problems(samples) == [
        "user 1000 sends more than 1000 annotations a second: 500 annotations are left out"
    ]
    named.consume(Datagram(message("mark", "later"), ME, 1_000, 5 + SECOND))
    assert [row[1] for row in rows_of(list(named.at_mark(9 + SECOND, {ME})))] == ["later"]


def test_what_a_program_could_not_send_is_counted_by_what_it_says_of_it() -> None:
    named = Annotations()
    for at, unsent in enumerate((0, 3, 0, 4)):
        named.consume(Datagram(message("mark", "x", unsent=unsent), ME, USER, at))
    samples = list(named.at_mark(9, {ME}))
    assert len(rows_of(samples)) == 4
    assert problems(samples) == [
        f"process {ME} could not send while the queue was full: 7 annotations are left out"
    ]


def test_open_ranges_are_bounded() -> None:
    named = Annotations()
    for number in range(400):
        named.consume(Datagram(message("begin", f"r{number}"), ME, USER, number))
    samples = list(named.at_mark(9_999, {ME}, last=True))
    assert len(rows_of(samples)) == MOST_OPEN
    assert any("more ranges have begun" in text for text in problems(samples))


# -- the socket ------------------------------------------------------------------------------------------


@pytest.fixture
def own() -> Iterator[tuple[list[Datagram], str]]:
    bound, address = own_socket()
    found: list[Datagram] = []
    reader = AnnotationSocket(bound, found.append)
    reader.start()
    yield found, address
    reader.close()


def sent(found: list[Datagram], count: int) -> list[Datagram]:
    wait_until(lambda: len(found) >= count, "it has come")
    return found


def test_the_kernel_reports_who_sent_it_and_when(own: tuple[list[Datagram], str]) -> None:
    found, address = own
    body = "import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    body += "s.sendto(b'{\"begin\": \"x\", \"pid\": 1}', sys.argv[1].replace('@', '\\0', 1))"
    before = time.monotonic_ns()
    child = subprocess.Popen([sys.executable, "-c", body, address])
    child.wait()
    (said,) = sent(found, 1)
    assert (said.pid, said.uid) == (child.pid, USER)
    assert before < said.time_ns < time.monotonic_ns()


def test_its_end_is_at_once_and_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotation_socket, "POLL_S", 60.0)
    bound, _address = own_socket()
    found: list[Datagram] = []
    reader = AnnotationSocket(bound, found.append)
    reader.start()
    begun = time.monotonic()
    reader.close()
    assert time.monotonic() - begun < 30
    assert found == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes takes root")
def test_in_a_container_the_range_is_of_the_process_that_runs_the_command() -> None:
    """There it has another number, which is one of another process here."""
    bound, address = own_socket()
    named, taken = Annotations(), list[int]()

    def take(datagram: Datagram) -> None:
        named.consume(datagram)
        taken.append(datagram.pid)

    reader = AnnotationSocket(bound, take)
    reader.start()
    script = (
        "mount -t proc none /proc; echo $$; "
        f"{sys.executable} -m gputop annotate begin 'task 7' --socket '{address}'; read _; "
        f"{sys.executable} -m gputop annotate end 'task 7' --socket '{address}'; echo done; read _"
    )
    command = ["unshare", "--pid", "--mount", "--fork", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as outside:
        assert outside.stdin is not None
        assert outside.stdout is not None
        inner = int(outside.stdout.readline())
        (shell,) = {
            int(pid) for pid in Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
        }
        assert inner != shell
        print(file=outside.stdin, flush=True)
        assert outside.stdout.readline() == "done\n"
        wait_until(lambda: len(taken) == 2, "both have come")
        print(file=outside.stdin, flush=True)
    reader.close()
    samples = list(named.at_mark(time.monotonic_ns(), {shell}, last=True))
    assert problems(samples) == []
    assert [row[:4] for row in rows_of(samples)] == [("span", "task 7", shell, -1)]


def test_times_are_those_of_sending_not_of_reading() -> None:
    bound, address = own_socket()
    found: list[Datagram] = []
    reader = AnnotationSocket(bound, found.append)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        at = []
        for _ in range(3):
            before = time.monotonic_ns()
            sender.sendto(b"{}", address_of(address))
            at.append((before, time.monotonic_ns()))
            time.sleep(0.02)
    reader.start()
    sent(found, 3)
    reader.close()
    for one, (before, after) in zip(found, at, strict=True):
        assert before - 1_000_000 < one.time_ns < after + 1_000_000


def test_what_an_ended_process_sent_is_consumed_before_its_ranges_are_closed() -> None:
    """The socket's thread has not come to run yet."""
    bound, address = own_socket()
    named = Annotations()
    reader = AnnotationSocket(bound, named.consume)
    body = "import json, socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    body += "for act in ('begin', 'end', 'begin'):\n"
    body += "    s.sendto(json.dumps({act: 'task'}).encode(), sys.argv[1].replace('@', '\\0', 1))\n"
    with subprocess.Popen([sys.executable, "-c", body, address]) as child:
        child.wait()
    ended = time.monotonic_ns()
    reader.read_now()
    samples = list(named.at_mark(ended, {child.pid})) + list(named.at_mark(mark := ended + SECOND, set()))
    reader.close()
    (first, second) = rows_of(samples)
    assert problems(samples) == []
    assert [row[:4] for row in (first, second)] == [("span", "task", child.pid, -1)] * 2
    assert first[5] < second[4] < ended
    assert second[5] == mark


def test_a_flood_does_not_hold_who_reads_at_once() -> None:
    bound, address = own_socket()
    found: list[Datagram] = []
    reader = AnnotationSocket(bound, found.append)
    flooding = threading.Event()

    def flood() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(0.1)
            while not flooding.is_set():
                with suppress(OSError):
                    sender.sendto(b"{}", address_of(address))

    threads = [threading.Thread(target=flood) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: (reader.read_now(), len(found) > 1_000)[1], "the flood is read in many turns")
    flooding.set()
    for thread in threads:
        thread.join()
    reader.close()


def test_a_message_that_is_too_long_is_dropped_whole(own: tuple[list[Datagram], str]) -> None:
    found, address = own
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x" * (MOST_BYTES + 1), address_of(address))
        sender.sendto(message("mark", "short"), address_of(address))
    assert [one.message for one in sent(found, 1)] == [message("mark", "short")]


def test_nobody_waits_where_gputop_does_not_read() -> None:
    bound, address = own_socket()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        room = 0
        with suppress(BlockingIOError):
            while room < 100_000:
                sender.sendto(b"{}", address_of(address))
                room += 1
        assert 0 < room < 100_000
    bound.close()


def test_the_well_known_socket_is_a_file_that_goes_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "annotate.sock"
    listening = listen(str(path), socket.SOCK_DGRAM)
    found: list[Datagram] = []
    reader = AnnotationSocket(Bound(listening.socket, listening.close), found.append)
    reader.start()
    assert path.stat().st_mode & 0o777 == 0o666
    with pytest.raises(OSError, match="in use"):
        listen(str(path), socket.SOCK_DGRAM)
    command = [sys.executable, "-m", "gputop", "annotate", "mark", "hello", "--socket", str(path)]
    subprocess.run(command, check=True)
    (said,) = sent(found, 1)
    assert json.loads(said.message) == {"mark": "hello", "pid": ME}
    reader.close()
    assert not path.exists()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no gputop listens at" in done.stderr
    assert "sudo gputop serve" in done.stderr
