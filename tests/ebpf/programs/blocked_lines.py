"""Blocks between two CUDA calls on lines that say how, and adds up how long each did.

Of the wall time of a line what it spent on a CPU (the thread's clock) or waiting for one (its schedstat) is
taken off. The sums of each process go to SELF_LOG. Argument: rounds.
"""

import ctypes
import json
import os
import queue
import sys
import threading
import time
from collections import defaultdict

RUNTIME = ctypes.CDLL(os.environ.get("TEST_CUDART", "libcudart.so.12"))
BLOCKED = defaultdict(lambda: [0, 0, 0])  # what -> times, ns, wall time
READ, WRITE = os.pipe()
BATCHES = queue.Queue()
HELD = threading.Lock()
LIBC = ctypes.PyDLL(None)  # keeps the GIL
OWN = threading.local()


def queued():
    """How long this thread has waited for a CPU; read without giving the interpreter to others."""
    if not hasattr(OWN, "file"):
        OWN.file, OWN.text = (
            os.open("/proc/thread-self/schedstat", os.O_RDONLY),
            ctypes.create_string_buffer(64),
        )
    length = LIBC.pread(OWN.file, OWN.text, 64, ctypes.c_long(0))
    return int(OWN.text.raw[:length].split()[1])


def spent():
    """(wall time, time on a CPU or waiting for one) of one moment: with no preemption in between."""
    before = -1
    while before != (now := queued()):
        before, clocks = now, (time.perf_counter_ns(), time.thread_time_ns())
    return clocks[0], clocks[1] + before


class Blocked:
    def __init__(self, what):
        self.what = what

    def __enter__(self):
        self.before = spent()

    def __exit__(self, *_):
        (wall, busy), (began, before) = spent(), self.before
        BLOCKED[self.what][0] += 1
        BLOCKED[self.what][1] += (wall - began) - (busy - before)
        BLOCKED[self.what][2] += wall - began


def feed(rounds):
    for _ in range(rounds):
        with Blocked("feeder"):
            time.sleep(0.015)  # feeder
        BATCHES.put(1)
        with Blocked("writer"):
            time.sleep(0.005)  # writer
        with HELD:
            os.write(WRITE, b"x")
            with Blocked("holder"):
                time.sleep(0.01)  # holder


def step():
    RUNTIME.cudaDeviceSynchronize()
    with Blocked("queue"):
        BATCHES.get()  # queue
    with Blocked("pipe"):
        os.read(READ, 1)  # pipe
    with Blocked("lock"):
        HELD.acquire()  # lock
    HELD.release()
    RUNTIME.cudaDeviceSynchronize()
    with Blocked("sleep"):
        time.sleep(0.004)  # sleep


def tell():
    with open(os.environ["SELF_LOG"], "a") as file:
        file.write(json.dumps({"pid": os.getpid(), "blocked": BLOCKED}) + "\n")


def main():
    rounds = int(sys.argv[1])
    feeder = threading.Thread(target=feed, args=(rounds,))
    feeder.start()
    for _ in range(rounds):
        step()
    feeder.join()
    pid = os.fork()
    if pid == 0:
        BLOCKED.clear()
        vars(OWN).clear()
        for _ in range(rounds):
            with Blocked("forked"):
                time.sleep(0.004)  # forked
        tell()
        os._exit(0)
    with Blocked("child"):
        os.waitpid(pid, 0)  # child
    tell()


main()
