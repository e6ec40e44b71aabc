"""What closes probes after gputop: it closes all, gives way, and can be replaced. Pipes stand for links."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from pathlib import Path

import pytest

from probes import api
from probes.code import cookies
from probes.code.libraries import Probe
from probes.ebpf import attach_lock, attach_perf, degradation, detacher
from probes.ebpf.attach_perf import Detacher
from tests.waiting import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the locks are."""
    return tmp_path / "locks"


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


def files_of(pid: int) -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def waits_for_a_lock(pid: int) -> bool:
    """Whether the kernel lists a process behind the holder of a lock."""
    rows = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(row[1] == "->" and row[5] == str(pid) for row in rows)


def ignores(pid: int, *numbers: signal.Signals) -> bool:
    """Whether a process ignores these signals."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.split("SigIgn:")[1].split()[0], 16)
    return all(mask >> number - 1 & 1 for number in numbers)


def wait_closed(others: list[int]) -> None:
    deadline = time.monotonic() + 60
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
    helper = Detacher(folder=folder)
    mine, others = links(300)  # more than fit into one message
    helper.keep(mine)
    wait_until(lambda: files_of(helper.pid) > 300, "the helper to take them")
    assert open_ones(others) == 300
    helper.close()
    wait_closed(others)


def test_closing_waits_while_somebody_attaches(folder: Path) -> None:
    helper = Detacher(folder=folder)
    mine, others = links(3)
    helper.keep(mine)
    with attach_lock.turn(folder):
        helper.close()
        wait_until(lambda: waits_for_a_lock(helper.pid), "the helper to want the turn")
        assert open_ones(others) == 3
    wait_closed(others)


def test_who_attaches_waits_for_few_links_although_many_detachers_close_many(folder: Path) -> None:
    every = []
    for _ in range(4):
        helper = Detacher(folder=folder)
        mine, others = links(100)
        helper.keep(mine)
        helper.close()
        every += others
    wait_until(lambda: open_ones(every) < 400, "them to be at it")
    closed_meanwhile = []
    while (before := open_ones(every)) > 100:  # more than once: we may have no CPU before we ask for the turn
        with attach_lock.turn(folder):
            closed_meanwhile.append(before - open_ones(every))
        wait_until(lambda: open_ones(every) < before - 50, "them to go on")
    assert min(closed_meanwhile) <= 10
    wait_closed(every)


def test_detachers_take_turns_so_that_a_small_one_is_done_soon(folder: Path) -> None:
    every, helpers = [], []
    with attach_lock.turn(folder):
        for _ in range(5):
            helper = Detacher(folder=folder)
            mine, others = links(60)
            helper.keep(mine)
            helper.close()
            helpers.append(helper.pid)
            every.append(others)
        wait_until(lambda: all(map(waits_for_a_lock, helpers)), "all of them to wait")
    deadline = time.monotonic() + 60
    while sum(left := [open_ones(others) for others in every]) > 150 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert max(left) - min(left) <= 40, "else one is done when another has not begun"
    for others in every:
        wait_closed(others)


def test_of_several_libraries_the_first_probes_go_first() -> None:
    """Each message holds a library's probes, the hottest first."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        sent = [links(3)[0], links(1)[0], links(2)[0]]
        for message in sent:
            socket.send_fds(ours, [b"+"], message)
        ours.shutdown(socket.SHUT_WR)
        received = detacher.receive(theirs)
    first, second, third = [[os.fstat(link).st_ino for link in message] for message in sent]
    expected = [first[0], second[0], third[0], first[1], third[1], first[2]]
    assert [os.fstat(link).st_ino for link in received] == expected


def test_what_is_hot_comes_first_in_the_smaller_set() -> None:
    names = ["cudaFree", "cudaGetDevice", "cudaStreamSynchronize", "cudaLaunchKernel", "cudaMemcpyAsync"]
    rows = [(name, api.find(name, api.RUNTIME, 12)) for name in names]
    probes = [Probe(name, 0, cookies.encode(row, name), True) for name, row in rows if row is not None]
    kept = [probe.symbol for probe in degradation.selection(probes)]
    assert kept == ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaFree"]


def test_a_helper_that_was_killed_is_replaced_when_links_come(folder: Path) -> None:
    helper = Detacher(folder=folder)
    first, others = links(2)
    helper.keep(first)
    kill(killed := helper.pid)
    second, more = links(2)
    helper.keep(second)
    assert helper.pid != killed
    assert open_ones([*others, *more]) == 4
    helper.close()
    wait_closed([*others, *more])


def test_a_helper_that_was_killed_is_replaced_at_the_end(folder: Path) -> None:
    helper = Detacher(folder=folder)
    mine, others = links(2)
    helper.keep(mine)
    kill(killed := helper.pid)
    helper.close()
    assert helper.pid != killed
    wait_closed(others)


def test_the_signals_of_a_terminal_mean_gputop(folder: Path) -> None:
    helper = Detacher(folder=folder)
    mine, others = links(1)
    helper.keep(mine)
    pid = helper.pid
    meant_for_gputop = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    wait_until(lambda: ignores(pid, *meant_for_gputop), "it to begin")
    for number in meant_for_gputop:
        os.kill(pid, number)
    helper.close()
    wait_closed(others)
    assert helper.pid == pid, "else it was killed and replaced"


def test_the_descriptor_limit_is_raised_only_when_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program started by gputop inherits it."""
    limits, told = [(4096, 8192)], []
    monkeypatch.setattr("os.listdir", lambda _: ["0", "1", "2"])  # what is open
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
