"""The counts that every switch of the machine asks first never miss a watched thread or process.

Were one of them too small, switches of that thread would be lost without a word; were one of them left too
large, strangers would pay for it. The kernel's own maps of threads and processes say what must be counted.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from probes import schema
from probes.ebpf import attacher, bpfcall, loader
from probes.ebpf.loader import SLOTS
from tests.waiting import HANGS_S

pytestmark = pytest.mark.ebpf

# threads that come and go, children that do, and one that becomes another program from a thread of its own
FAMILY = """
import os, sys, threading, time
sys.stdin.readline()
for _ in range(40):
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    if not os.fork():
        os._exit(0)
    os.wait()
becomes = os.fork()
if not becomes:
    threading.Thread(target=os.execv, args=("/bin/sleep", ["sleep", "2"])).start()
    threading.Event().wait()
held = [os.fork() for _ in range(3)]
if 0 in held:
    sys.stdin.readline()
    os._exit(0)
held = [threading.Thread(target=sys.stdin.readline, daemon=True) for _ in range(3)]
for thread in held:
    thread.start()
while open(f"/proc/{becomes}/comm").read() != "sleep\\n":
    time.sleep(0.01)
print("all", flush=True)
sys.stdin.readline()
for _ in range(4):
    os.wait()
"""


class Probed:
    """Scheduler probes of processes that are requested."""

    def __init__(self) -> None:
        self.programs = loader.load(loader.Options(False, 1 << 20, os.getpid(), "off"))
        self._attachments = attacher.Attachments(self.programs)
        self._attachments.attach_scheduler()
        self._threads = bpfcall.BatchReader(self.programs.maps["threads"], 4, schema.THREAD_STATE_DTYPE)

    def slots(self) -> Counter[int]:
        """Slot -> count, of those that are not 0."""
        with mmap.mmap(self.programs.maps["slots"], 4 * SLOTS) as shared:
            counts = np.frombuffer(bytes(shared), "<u4")
        return Counter({int(slot): int(counts[slot]) for slot in np.flatnonzero(counts)})

    def watched(self) -> set[int]:
        """Numbers of the threads in the map."""
        return {int(tid) for tid in self._threads.read()["tid"]}

    def close(self) -> None:
        self._attachments.close()
        self.programs.module.close()


@pytest.fixture
def probed() -> Iterator[Probed]:
    made = Probed()
    yield made
    made.close()


def until_settled(probed: Probed, pid: int) -> tuple[set[int], Counter[int]]:
    """Threads and slots of a moment in which nothing came or went between two looks, all threads seen."""
    for _ in range(200):
        before, slots, after = probed.watched(), probed.slots(), probed.watched()
        if before == after and {int(tid) for tid in os.listdir(f"/proc/{pid}/task")} <= after:
            return after, slots
        time.sleep(0.05)
    raise AssertionError("the program's threads never came to rest")


def test_every_watched_thread_is_counted_and_nobody_who_has_gone(probed: Probed) -> None:
    family = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert family.stdin is not None
    assert family.stdout is not None
    assert not probed.slots()
    probed.programs.admit(family.pid)
    asked = family.pid % SLOTS
    assert set(probed.slots()) == {asked}
    family.stdin.write("begin\n")
    family.stdin.flush()
    assert family.stdout.readline() == "all\n"

    threads, slots = until_settled(probed, family.pid)
    pids = {tid for tid in threads if tid != family.pid and os.path.exists(f"/proc/{tid}/stat")}
    leaders = {pid for pid in pids if _is_process(pid)}
    wanted = Counter(tid % SLOTS for tid in threads) + Counter(pid % SLOTS for pid in leaders)
    assert len(leaders) >= 3, "the children are watched from their birth"
    assert all(slots[slot] >= count for slot, count in wanted.items())
    assert {slot for slot in slots if slots[slot] != wanted[slot]} == {asked}, (
        "40 threads and 40 children went"
    )

    family.communicate("\n" * 8, timeout=HANGS_S)
    assert set(probed.slots()) == {asked}


def _is_process(number: int) -> bool:
    with open(f"/proc/{number}/status") as status:
        return f"\nTgid:\t{number}\n" in status.read()
