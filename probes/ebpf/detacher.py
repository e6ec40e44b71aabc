"""Closes gputop's probes after gputop: a small process, so that the prompt is back at once.

Run as a script by ``attach_perf.py`` with the numbers of a socket, of two open files to lock (see
``attach_lock.py``), and perhaps of a BPF map. The socket carries links, each of which the kernel needs
up to a third of a second to close. When the other end is closed, by gputop or by its death, the
map is set, so that the programs do nothing any more, and all links are closed one after the other. Imports
nothing of gputop, so that it starts fast and stays small.
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
_PAUSE_S = 0.005  # in which another can get the turn, or the place in the queue
# a turn is one link, a third of a second: a process that keeps it so long was stopped, or is no gputop
PATIENCE_S = 30


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
    """Sets the first byte of an array map, which makes the programs idle."""
    with suppress(OSError, ValueError), mmap.mmap(cell, mmap.PAGESIZE) as page:
        page[0] = 1


class _Impatience:
    """Locks files; when one has not come in time, no lock is waited for any more."""

    def __init__(self) -> None:
        self._over = False
        signal.signal(signal.SIGALRM, self._end)

    def _end(self, *_: object) -> None:
        raise TimeoutError

    def lock(self, file: int) -> None:
        if self._over:
            return
        try:
            signal.alarm(PATIENCE_S)
            fcntl.flock(file, fcntl.LOCK_EX)
            signal.alarm(0)
        except TimeoutError:
            self._over = True


def close(links: list[int], turn: int, queue: int) -> None:
    """Closes links, one a turn.

    Args:
        links: Descriptors.
        turn: File that is locked while attaching or detaching.
        queue: File that the next detacher to get the turn has locked: so a gputop that attaches waits for at
            most one link, however many detachers there are. They alternate: one with few links is done soon
            beside one with hundreds.
    """
    wait = _Impatience()
    for link in links:
        wait.lock(queue)
        wait.lock(turn)
        os.close(link)
        fcntl.flock(turn, fcntl.LOCK_UN)
        time.sleep(_PAUSE_S)
        fcntl.flock(queue, fcntl.LOCK_UN)
        time.sleep(_PAUSE_S)  # locked again at once it would go before others that have waited


def main(channel_fd: int, turn: int, queue: int, *cells: int) -> None:
    """Holds the links from the channel until its other end is closed."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # they mean gputop
        signal.signal(number, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with socket.socket(fileno=channel_fd) as channel:
        links = receive(channel)
    for cell in cells:
        stop(cell)
    close(links, turn, queue)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
