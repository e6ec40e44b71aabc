"""Ranks of one job, a process each: join a communicator, then train; says who each is and what it called.

``ranks.py RANKS STEPS MS SLOW``: rank SLOW sleeps for MS milliseconds before each step.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time

from cuda import Cuda
from nccl import Nccl, UniqueId

BUCKETS = 2  # collectives a step


def say(**what: object) -> None:
    """A line in the program's own words."""
    with open(os.environ["SELF_LOG"], "a") as log:
        log.write(json.dumps({"pid": os.getpid(), **what}) + "\n")


def train(rank: int, ranks: int, steps: int, seconds: float, meeting: str) -> None:
    """One rank."""
    cuda, nccl = Cuda(), Nccl()
    assert cuda.SetDevice(rank) == 0
    assert cuda.SetDeviceFlags(4) == 0  # waiting takes no CPU
    comm = nccl.join(rank, ranks, meeting)
    with open(meeting, "rb") as file:
        say(rank=rank, ranks=ranks, communicator=comm.value, id=file.read().hex())
    stream, took = cuda.stream(1), []
    for _ in range(steps):
        began = time.monotonic()
        time.sleep(seconds)
        took.append(time.monotonic() - began)
        for _ in range(BUCKETS):
            assert cuda.launch(1_000_000, stream) == 0
            assert nccl.all_reduce(comm, stream, 1000) == 0
        assert cuda.StreamSynchronize(stream) == 0
    assert nccl.CommDestroy(comm) == 0
    say(rank=rank, slept_ms=statistics.median(took) * 1e3)


def alone() -> None:
    """A process that holds all ranks of its communicator."""
    nccl = Nccl()
    comms = (ctypes.c_void_p * 2)()
    assert nccl.CommInitAll(comms, 2, None) == 0
    say(communicators=[comms[0], comms[1]])
    words = hashlib.shake_128(b"an id").digest(128)  # no row of numbers: a file is full of them
    other = nccl.join(0, 1, UniqueId.from_buffer_copy(words))
    say(communicator=other.value, rank=0, ranks=1, id=words.hex())
    assert nccl.CommAbort(other) == 0


def main() -> None:
    """Forks the ranks, and waits for them."""
    ranks, steps, slow = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4])
    seconds = float(sys.argv[3]) / 1e3
    children = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            if pid := os.fork():
                children.append(pid)
                continue
            train(rank, ranks, steps, seconds if rank == slow else 0, f"{folder}/id")
            os._exit(0)
        assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    if pid := os.fork():
        assert os.waitpid(pid, 0)[1] == 0
    else:
        alone()
        os._exit(0)


if __name__ == "__main__":
    main()
