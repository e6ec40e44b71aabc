"""Whether a socket is the server's end of a connection: whoever waits there waits for somebody to ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 1 << 20  # of a table of sockets: ten thousand of them
_LISTENS_TCP = "0A"
_LISTENS_UNIX = "00010000"  # the flags of one that listens (__SO_ACCEPTCON)
_TCP_FIELDS, _UNIX_FIELDS = 10, 7


def is_accepted(pid: int, inode: int, proc: Path = Path("/proc")) -> bool:
    """Whether a connected socket was accepted from one that listens, as /proc of its process tells.

    Of TCP: one that listens has its local port. Of local sockets: it bears the name of one that listens.
    False where that cannot be read, or the table is longer than ``MOST_BYTES``.
    """
    net = proc / str(pid) / "net"
    return _accepted_unix(net / "unix", inode) or any(
        _accepted_tcp(net / name, inode) for name in ("tcp", "tcp6")
    )


def _lines(path: Path) -> Iterator[list[str]]:
    """The rows of a table, in words; its head is left out."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES)
    except OSError:
        return
    for line in text.decode("utf-8", "replace").splitlines()[1:]:
        yield line.split()


def _accepted_tcp(path: Path, inode: int) -> bool:
    own, listening = "", set()
    for words in _lines(path):
        if len(words) < _TCP_FIELDS:
            continue
        port = words[1].rpartition(":")[2]
        if words[3] == _LISTENS_TCP:
            listening.add(port)
        elif words[9] == str(inode):
            own = port
    return own in listening


def _accepted_unix(path: Path, inode: int) -> bool:
    own, listening = "", set()
    for words in _lines(path):
        if len(words) <= _UNIX_FIELDS:  # without a name
            continue
        if words[3] == _LISTENS_UNIX:
            listening.add(words[7])
        elif words[6] == str(inode):
            own = words[7]
    return own in listening
