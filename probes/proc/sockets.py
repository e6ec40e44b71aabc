"""Whether a socket is the server's end of a connection: whoever waits there waits for somebody to ask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 1 << 20  # of a table of sockets: ten thousand of them
_LISTENS_TCP = "0A"
_LISTENS_UNIX = "00010000"  # the flags of one that listens (__SO_ACCEPTCON)
_TCP_FIELDS, _UNIX_FIELDS = 10, 7


class Sockets:
    """The sockets of all networks at one moment: the tables of each are read once, for they may be long.

    Args:
        proc: Where /proc is.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._accepted: dict[tuple[int, int], frozenset[str]] = {}

    def is_accepted(self, pid: int, inode: int) -> bool:
        """Whether a connected socket was accepted from one that listens, as /proc of its process tells.

        Of TCP: one that listens has its local port. Of local sockets: it bears the name of one that listens.
        False where that cannot be read, or it is beyond the first ``MOST_BYTES`` of a table.
        """
        folder = self._proc / str(pid)
        try:
            status = os.stat(folder / "ns" / "net")
            network = status.st_dev, status.st_ino
        except OSError:
            network = 0, pid
        if network not in self._accepted:
            net = folder / "net"
            self._accepted[network] = frozenset(
                [*_unix(net / "unix"), *_tcp(net / "tcp"), *_tcp(net / "tcp6")]
            )
        return str(inode) in self._accepted[network]


def _lines(path: Path) -> Iterator[list[str]]:
    """The rows of a table, in words; its head is left out."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES)
    except OSError:
        return
    for line in text.decode("utf-8", "replace").splitlines()[1:]:
        yield line.split()


def _tcp(path: Path) -> Iterator[str]:
    """The inodes of those that were accepted."""
    ports: dict[str, str] = {}
    listening = set()
    for words in _lines(path):
        if len(words) < _TCP_FIELDS:
            continue
        port = words[1].rpartition(":")[2]
        if words[3] == _LISTENS_TCP:
            listening.add(port)
        else:
            ports[words[9]] = port
    return (inode for inode, port in ports.items() if port in listening)


def _unix(path: Path) -> Iterator[str]:
    """The same of local sockets."""
    names: dict[str, str] = {}
    listening = set()
    for words in _lines(path):
        if len(words) <= _UNIX_FIELDS:  # without a name
            continue
        if words[3] == _LISTENS_UNIX:
            listening.add(words[7])
        else:
            names[words[6]] = words[7]
    return (inode for inode, name in names.items() if name in listening)
