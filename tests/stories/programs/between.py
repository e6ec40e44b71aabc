"""Processes that are slow beside the GPU's. Arguments: KIND before|after; see the functions."""

import mmap
import multiprocessing as mp
import os
import socket
import sys
import time

from clock import Clock
from plain import Gpu

KIND, WHICH = sys.argv[1:3]
BEFORE = WHICH == "before"
CONTEXT = mp.get_context("fork")
RECORD = bytes(1 << 16)  # as much as a pipe holds


# -- who reads what the GPU's process writes is slow ----


def read_computing(read) -> None:
    while read():
        until, x = time.perf_counter() + (0.012 if BEFORE else 0), 0
        while time.perf_counter() < until:
            x += 1


def read_sleeping(read) -> None:
    while read():
        time.sleep(0.012 if BEFORE else 0)


def read_writing(read) -> None:
    with open("/var/tmp/between.log", "wb") as file:
        while data := read():
            until = time.perf_counter() + (0.012 if BEFORE else 0)  # however fast the disk is
            file.write(data)
            while time.perf_counter() < until:
                file.seek(0)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
    os.unlink("/var/tmp/between.log")


def whole(read):
    """Reads records, whatever pieces they come in."""

    def record() -> bytes:
        parts, left = [], len(RECORD)
        while left and (part := read(left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    return record


def writes(reader, by: str):
    if by == "pipe":
        take, give = os.pipe()
    else:
        ours, theirs = socket.socketpair()
        for one in (ours, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        take, give = theirs.fileno(), ours.fileno()
    child = CONTEXT.Process(target=reading, args=(reader, take, give), name="reader")
    child.start()
    os.close(take)

    def write() -> None:
        left = memoryview(RECORD)
        while left:
            left = left[os.write(give, left) :]

    def stop() -> None:
        if by != "pipe":
            ours.shutdown(socket.SHUT_WR)
        os.close(give)

    return write, stop


def reading(reader, take: int, give: int) -> None:
    os.close(give)
    reader(whole(lambda size: os.read(take, size)))


# -- polls for another process ----


def schedule() -> None:
    until, x = time.perf_counter() + (0.015 if BEFORE else 0.0002), 0
    while time.perf_counter() < until:
        x += 1


def schedules(memory) -> None:
    done = 0
    while memory[1] != 255:
        if memory[1] == done:
            schedule()
            done = (done + 1) % 250
            memory[0] = done
        else:
            time.sleep(0.0001)


def polls(pause):
    memory = mmap.mmap(-1, 4096)
    memory[0] = memory[1] = 0
    CONTEXT.Process(target=schedules, args=(memory,), name="scheduler").start()
    last = 0

    def dequeue() -> None:
        nonlocal last
        while memory[0] == last:
            pause()
        last = memory[0]
        memory[1] = last

    def stop() -> None:
        memory[1] = 255

    return dequeue, stop


KINDS = {
    "pipe_computing": lambda: writes(read_computing, "pipe"),
    "pipe_sleeping": lambda: writes(read_sleeping, "pipe"),
    "socket_computing": lambda: writes(read_computing, "socket"),
    "pipe_writing": lambda: writes(read_writing, "pipe"),
    "poll_yield": lambda: polls(os.sched_yield),
    "poll_sleep": lambda: polls(lambda: time.sleep(0.0005)),
    "poll_spin": lambda: polls(lambda: None),
}


def main() -> None:
    work, stop = KINDS[KIND]()
    gpu, clock = Gpu(), Clock()
    while not clock.tick():
        work()
        gpu.step()
    clock.report()
    stop()


main()
