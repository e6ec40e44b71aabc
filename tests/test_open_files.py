"""File descriptors on which threads block: what they are, and how often that is asked."""

from __future__ import annotations

import os

import numpy as np
import pytest

from probes import schema
from probes.proc import open_files, syscalls
from probes.proc.open_files import FRESH_NS, READ_PER_MARK, OpenFiles, describe
from probes.schema import ALIASED, Kind, Records

READ, FUTEX = 0, 202
NOBODY = np.zeros(0, schema.THREAD_STATE_DTYPE)


@pytest.mark.parametrize(
    ("link", "what"),
    [
        ("pipe:[123]", "pipe"),
        ("socket:[5]", "socket"),
        ("anon_inode:[eventfd]", "eventfd"),
        ("anon_inode:[eventfd:7]", "eventfd"),
        ("anon_inode:[eventpoll]", "anon:eventpoll"),
        ("anon_inode:inotify", "anon:inotify"),
        ("/dev/nvidia0", "device:/dev/nvidia0"),
        ("/dev/shm/nccl-1", "file:/dev/shm/nccl-1"),
        ("/memfd:secret (deleted)", "anon:memfd"),
        ("/tmp/a file (deleted)", "file:/tmp/a file"),
        ("net:[4026531840]", "anon:net"),
    ],
)
def test_the_kind_of_a_descriptor_is_read_from_its_link(link: str, what: str) -> None:
    assert describe(link) == what


def waits(*arguments: int, op: int = READ) -> Records:
    """Slices of this process in a system call."""
    made = schema.empty(len(arguments))
    made["kind"], made["op"], made["pid"] = Kind.OFFCPU, op, os.getpid()
    made.view(ALIASED)["argument"] = arguments
    return made


def told(files: OpenFiles, now_ns: int) -> list[tuple[int, str]]:
    return [
        pair
        for sample in files.samples(NOBODY, now_ns)
        for pair in zip(sample.data["fd"], sample.data["what"], strict=True)
    ]


def test_a_descriptor_is_reported_once_and_again_when_it_became_another() -> None:
    files = OpenFiles("x86_64")
    out, into = os.pipe()
    event = os.eventfd(0)
    files.notice(waits(out, out, 1 << 31))
    files.notice(waits(into, op=FUTEX))
    assert told(files, 0) == [(out, "pipe")]
    os.dup2(event, out)
    files.notice(waits(out))
    assert told(files, FRESH_NS // 2) == []
    files.notice(waits(out))
    assert told(files, FRESH_NS) == [(out, "eventfd")]
    for number in (out, into):
        os.close(number)
    files.notice(waits(out, event))
    assert told(files, 3 * FRESH_NS) == [(event, "eventfd")]
    os.close(event)


def test_a_thread_that_waits_at_the_mark_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "kind_of", lambda pid, descriptor, _sockets: f"file:/{pid}/{descriptor}")
    states = np.zeros(2, schema.THREAD_STATE_DTYPE)
    states["pid"], states["syscall"], states["argument"], states["off_since"] = 9, READ, (4, 5), (0, 77)
    (sample,) = OpenFiles("x86_64").samples(states, 0)
    assert sample.data == {"pid": [9], "fd": [5], "what": ["file:/9/5"]}


def test_a_mark_asks_for_a_bounded_number_and_the_rest_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        open_files, "kind_of", lambda pid, descriptor, _sockets: asked.append(descriptor) or "pipe"
    )
    monkeypatch.setattr(open_files, "READING_S", 60.0)  # the other bound, which a busy machine may reach
    files = OpenFiles("x86_64")
    files.notice(waits(*range(READ_PER_MARK + 50)))
    assert len(told(files, 0)) == READ_PER_MARK
    assert len(told(files, 1)) == 50
    assert sorted(asked) == list(range(READ_PER_MARK + 50))


def test_a_mark_that_would_be_late_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "kind_of", lambda *_: "pipe")
    monkeypatch.setattr(open_files, "READING_S", 0.0)
    files = OpenFiles("x86_64")
    files.notice(waits(*range(3)))
    assert [len(told(files, mark)) for mark in range(3)] == [1, 1, 1]


def test_system_calls_have_their_numbers_on_both_architectures() -> None:
    assert [syscalls.name(number, "x86_64") for number in (0, 202, 232)] == ["read", "futex", "epoll_wait"]
    assert [syscalls.name(number, "aarch64") for number in (63, 98, 22)] == ["read", "futex", "epoll_pwait"]
    assert syscalls.name(0xFFFF, "x86_64") == syscalls.name(0, "riscv64") == ""
    assert syscalls.of_files("x86_64")[[0, 16, 202]].tolist() == [True, True, False]
    assert not syscalls.of_files("riscv64").any()
