"""Closes gputop's probes after gputop: a small process, so that the prompt is back at once.

Run as a script by ``probes/attach_perf.py`` with the number of a socket, the names of two files to lock,
and perhaps the number of a BPF map. What comes through the socket are links, each of which takes the kernel
up to a third of a second to close. When the other end is closed, by gputop or by its death, the map is set,
so that the programs do nothing any more, and all links are closed one after the other. Knows nothing of
gputop, so that it starts fast and stays small.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import signal
import socket
import sys
import time
from contextlib import suppress
from itertools import zip_longest

_MOST_AT_ONCE = 253  # SCM_MAX_FD
_PAUSE_S = 0.005  # in which who waits can take the turn, or the place in the queue


def receive(channel: socket.socket) -> list[int]:
    """All descriptors that come until the other end is closed: the first of each message, then the second…

    A message holds the probes of one library, those that are hit most often first.
    """
    messages: list[list[int]] = []
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, 1, _MOST_AT_ONCE)
        if not data:
            return [link for row in zip_longest(*messages) for link in row if link is not None]
        messages.append(descriptors)


def stop(cell: int) -> None:
    """Sets the first byte of an array map, which programs look at."""
    with suppress(OSError, ValueError), mmap.mmap(cell, mmap.PAGESIZE) as page:
        page[0] = 1


def close(links: list[int], turn: int, queue: int) -> None:
    """Closes them, one each time it is our turn.

    Args:
        links: Descriptors.
        turn: File that whoever attaches or detaches has locked meanwhile.
        queue: File that the one of all detachers has locked who waits for his turn: so a gputop
            that attaches waits for one link to close at most, however many detachers there are. They take
            it in turns: who has few links is done soon beside those who have hundreds.
    """
    for link in links:
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(turn, fcntl.LOCK_EX)
        os.close(link)
        fcntl.flock(turn, fcntl.LOCK_UN)
        time.sleep(_PAUSE_S)
        fcntl.flock(queue, fcntl.LOCK_UN)
        time.sleep(_PAUSE_S)  # who takes it again at once goes before others who have waited


def main(channel_fd: int, turn: str, queue: str, *cells: str) -> None:
    """Holds what comes through the channel until its other end is closed."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # they mean gputop
        signal.signal(number, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    locks = [os.open(path, os.O_RDONLY) for path in (turn, queue)]
    with socket.socket(fileno=channel_fd) as channel:
        links = receive(channel)
    for cell in cells:
        stop(int(cell))
    close(links, *locks)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
