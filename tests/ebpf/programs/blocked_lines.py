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
BLOCKED = defaultdict(lambda: [0, 0])  # what -> times, ns
READ, WRITE = os.pipe()
BATCHES = queue.Queue()
HELD = threading.Lock()


def spent():
    with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
        waiting = int(file.read().split()[1])
    return time.perf_counter_ns(), time.thread_time_ns() + waiting


class Blocked:
    def __init__(self, what):
        self.what = what

    def __enter__(self):
        self.before = spent()

    def __exit__(self, *_):
        (wall, busy), (began, before) = spent(), self.before
        BLOCKED[self.what][0] += 1
        BLOCKED[self.what][1] += (wall - began) - (busy - before)


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
        for _ in range(rounds):
            with Blocked("forked"):
                time.sleep(0.004)  # forked
        tell()
        os._exit(0)
    with Blocked("child"):
        os.waitpid(pid, 0)  # child
    tell()


main()
