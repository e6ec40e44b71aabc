"""Processes that cannot be watched are refused with the reason and the number to name instead."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.errors import CommandError
from gputop.process.targets import check_pids, named
from tests.waiting import wait_until


def refused(pid: int) -> str:
    with pytest.raises(CommandError) as error:
        check_pids((os.getpid(), pid), "sudo {}")
    return str(error.value)


def test_a_thread_names_its_process() -> None:
    wait, started = threading.Event(), threading.Event()
    numbers: list[int] = []

    def live() -> None:
        numbers.append(threading.get_native_id())
        started.set()
        wait.wait()

    thread = threading.Thread(target=live)
    thread.start()
    started.wait()
    try:
        said = refused(numbers[0])
    finally:
        wait.set()
        thread.join()
    assert said == f"{numbers[0]} is a thread of {named(os.getpid())}: --pid {os.getpid()}"


def test_a_process_that_has_ended_is_told_as_such() -> None:
    with subprocess.Popen(["true"]) as child:
        wait_until(lambda: "\nState:\tZ" in Path(f"/proc/{child.pid}/status").read_text(), "its end")
        assert refused(child.pid) == (
            f"process {child.pid} (true) has ended; its parent has not read its exit status yet"
        )
    assert refused(child.pid).startswith(f"there is no process {child.pid}: it has ended")


def test_a_thread_of_the_kernel_makes_no_cuda_calls() -> None:
    def name(process: Path) -> str:
        with suppress(OSError):  # it ended
            return (process / "comm").read_text()
        return ""

    kernels = [int(one.name) for one in Path("/proc").glob("[0-9]*") if name(one) == "kthreadd\n"]
    if not kernels:
        pytest.skip("this pid namespace shows no kernel threads")
    assert (
        refused(kernels[0])
        == f"process {kernels[0]} (kthreadd) is a thread of the kernel, which makes no CUDA calls"
    )
