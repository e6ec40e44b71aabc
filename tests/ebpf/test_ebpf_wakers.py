"""Who woke a thread: the thread that did it, or an interrupt, whoever had the CPU when it came."""

from __future__ import annotations

import os
import platform

import pytest

from probes.ebpf import loader
from probes.ebpf.build import btf
from probes.proc import syscalls
from probes.schema import ALIASED, Kind, OffFlag, Records
from tests.ebpf.recording import Recorded, Workshop, compile_program

pytestmark = pytest.mark.ebpf
ROUNDS = 1000
FEWEST = 100  # who is preempted by whom it woke finds its answer there, and does not wait
WAITS = ("read", "clock_nanosleep", "nanosleep")


@pytest.fixture(scope="module", params=["multi", pytest.param("perf", marks=pytest.mark.long)])
def attach(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runs(attach: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """The program in each of its modes, all in one recording."""
    folder = tmp_path_factory.mktemp("wakers")
    program = str(compile_program("wakers.c", folder))
    modes = {mode: [program, mode] for mode in ("timer", "pipe", "loopback")}
    made = Workshop(folder, attach).record_all(modes)
    assert made["timer"].lost == 0
    return made


def threads_of(run: Recorded) -> dict[str, int]:
    """The threads by who they are."""
    return {line["who"]: line["tid"] for line in run.said}


def woken(run: Recorded, tid: int) -> Records:
    """Waits of a thread in its own system call, whose wakeup was seen."""
    slices = run.records(Kind.OFFCPU).view(ALIASED)
    numbers = [n for n in range(512) if syscalls.name(n, platform.machine()) in WAITS]
    hidden = slices["flags"] & (OffFlag.WAKE_MISSED | OffFlag.QUEUED) != 0
    found: Records = slices[(slices["tid"] == tid) & ~hidden & [op in numbers for op in slices["op"]]]
    return found


def test_a_timer_is_an_interrupt_also_when_it_hits_a_busy_thread(runs: dict[str, Recorded]) -> None:
    run = runs["timer"]
    rows = woken(run, threads_of(run)["sleeper"])
    print(len(rows), "wakeups")
    assert len(rows) > 0.9 * ROUNDS
    assert (rows["flags"] & OffFlag.WAKER_IRQ != 0).all()
    assert not rows["waker_tid"].any()
    assert not rows["waker_pid"].any()


def test_who_writes_into_a_pipe_is_the_waker(runs: dict[str, Recorded]) -> None:
    run, threads = runs["pipe"], threads_of(runs["pipe"])
    for one, other in (("first", "second"), ("second", "first")):
        rows = woken(run, threads[one])
        assert len(rows) > FEWEST
        assert set(rows["waker_tid"].tolist()) == {threads[other]}
        assert not (rows["flags"] & (OffFlag.WAKER_IRQ | OffFlag.WAKER_SOFTIRQ)).any()


def test_who_sends_through_the_loopback_is_the_waker_through_a_softirq(runs: dict[str, Recorded]) -> None:
    run, threads = runs["loopback"], threads_of(runs["loopback"])
    rows = woken(run, threads["first"])
    assert len(rows) > FEWEST
    by_sender = (rows["waker_tid"] == threads["second"]) & (rows["flags"] & OffFlag.WAKER_SOFTIRQ != 0)
    print(f"{by_sender.sum()} of {len(rows)} by the sender")
    assert by_sender.mean() > 0.95, "the rest may be the kernel's own thread for softirqs"


def test_the_programs_load_also_where_the_kernel_reports_neither_interrupts_nor_throttling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(btf, "OPTIONAL", {"thread_info": ("cpu",)})  # which CPU it is, all kernels tell
    programs = loader.load(loader.Options(False, 1 << 20, os.getpid()))
    assert programs.observes == {"interrupts": False, "throttling": False}
    programs.module.close()
