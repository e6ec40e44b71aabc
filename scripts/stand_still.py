#!/usr/bin/env python3
"""Stops this machine now and then, as a host stops a virtual machine whose processors it withdraws.

``stand_still.py [MS] [EVERY_MS]``: for up to MS milliseconds (600), every EVERY_MS on average (2,500),
nothing else runs on any processor that this process may use: one process on each of them is of the first
rank of real time and spins until the same moment. Needs root; goes on until it is ended. A test that fails
beside it waits for a time where it could wait for a condition.
"""

from __future__ import annotations

import os
import random
import sys
import time
from multiprocessing import Process

FIRST = 99  # of SCHED_FIFO; the kernel leaves others a twentieth of each second all the same


def stand_still(parent: int, cpu: int, seed: float, longest_s: float, every_s: float) -> None:
    """All processes draw the same moments, until their parent has gone."""
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIRST))
    drawn, moment = random.Random(seed), seed
    while os.getppid() == parent:
        moment += drawn.uniform(0.5, 1.5) * every_s
        until = moment + drawn.uniform(0, longest_s)
        time.sleep(max(moment - time.monotonic(), 0))
        while time.monotonic() < until:
            pass


def main() -> None:
    """One process a processor."""
    words = dict(enumerate(sys.argv[1:]))
    longest_s, every_s = float(words.get(0, 600)) / 1000, float(words.get(1, 2500)) / 1000
    if longest_s > every_s / 2:
        sys.exit("stand_still: it would stand still all the time: MS is to be at most half of EVERY_MS")
    if os.geteuid() != 0:
        sys.exit("stand_still: only root may keep all others from the processors")
    seed = time.monotonic()
    for cpu in sorted(os.sched_getaffinity(0)):
        Process(target=stand_still, args=(os.getpid(), cpu, seed, longest_s, every_s)).start()
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
