"""What closes probes after gputop: it closes all, gives way, and can be replaced. Pipes stand for links."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import pytest

from probes import attach_perf
from probes.attach_perf import Detacher


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Stands for perf's uprobes in /sys."""
    (tmp_path / "format").mkdir()
    (tmp_path / "type").write_text("8\n")
    (tmp_path / "format" / "retprobe").write_text("config:0\n")
    return tmp_path


def links(count: int) -> tuple[list[int], list[int]]:
    """Ends to hand over, and the other ends, which notice when nobody holds those any more."""
    pairs = [os.pipe() for _ in range(count)]
    return [read for read, _ in pairs], [write for _, write in pairs]


def open_ones(others: list[int]) -> int:
    """How many links somebody still holds."""
    poll = select.poll()
    for other in others:
        poll.register(other, 0)
    return len(others) - len(poll.poll(0))


def wait_closed(others: list[int]) -> None:
    deadline = time.monotonic() + 10
    while open_ones(others):
        assert time.monotonic() < deadline, f"{open_ones(others)} of {len(others)} are still open"
        time.sleep(0.01)
    for other in others:
        os.close(other)


def kill(pid: int) -> None:
    """Kills our helper and waits until it is a zombie, which the helper's owner has yet to notice."""
    os.kill(pid, signal.SIGKILL)
    while (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)


def test_links_stay_until_their_owner_lets_go_and_all_are_closed_then(folder: Path) -> None:
    mine, others = links(300)  # more than fit into one message
    detacher = Detacher(folder)
    detacher.keep(mine)
    time.sleep(0.2)
    assert open_ones(others) == 300
    detacher.close()
    wait_closed(others)


def test_closing_waits_while_somebody_attaches(folder: Path) -> None:
    mine, others = links(3)
    detacher = Detacher(folder)
    detacher.keep(mine)
    with attach_perf.turn(folder):
        detacher.close()
        time.sleep(0.3)
        assert open_ones(others) == 3
    wait_closed(others)


def test_who_attaches_waits_for_few_links_although_many_detachers_close_many(folder: Path) -> None:
    every = []
    for _ in range(4):
        mine, others = links(100)
        detacher = Detacher(folder)
        detacher.keep(mine)
        detacher.close()
        every += others
    time.sleep(0.2)
    before = open_ones(every)
    assert before > 100, "they are at it"
    with attach_perf.turn(folder):
        assert open_ones(every) >= before - 10
    wait_closed(every)


def test_a_helper_that_was_killed_is_replaced_when_links_come(folder: Path) -> None:
    first, others = links(2)
    detacher = Detacher(folder)
    detacher.keep(first)
    kill(killed := detacher.pid)
    second, more = links(2)
    detacher.keep(second)
    assert detacher.pid != killed
    assert open_ones([*others, *more]) == 4
    detacher.close()
    wait_closed([*others, *more])


def test_a_helper_that_was_killed_is_replaced_at_the_end(folder: Path) -> None:
    mine, others = links(2)
    detacher = Detacher(folder)
    detacher.keep(mine)
    kill(killed := detacher.pid)
    detacher.close()
    assert detacher.pid != killed
    wait_closed(others)


def test_the_signals_of_a_terminal_mean_gputop(folder: Path) -> None:
    mine, others = links(1)
    detacher = Detacher(folder)
    detacher.keep(mine)
    time.sleep(0.3)  # it has begun
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(detacher.pid, number)
    time.sleep(0.1)
    detacher.close()
    wait_closed(others)


def test_the_descriptor_limit_is_raised_only_when_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program started by gputop inherits it."""
    limits, told = [(4096, 8192)], []
    monkeypatch.setattr("resource.getrlimit", lambda _: limits[0])
    monkeypatch.setattr("resource.setrlimit", lambda _, pair: told.append(pair))
    attach_perf.allow_descriptors(1000)
    assert told == []
    attach_perf.allow_descriptors(5000)
    attach_perf.allow_descriptors(100_000)
    (needed, hard), most = told
    assert 5000 < needed < 6000
    assert hard == 8192
    assert most == (8192, 8192)
