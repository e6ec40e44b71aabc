"""Where the peer of a socket is, and which sockets are the server's end of their connection."""

from __future__ import annotations

import functools
import ipaddress
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

SOCKET = "socket"  # nothing more is known of it
ACCEPTED = "socket:accepted"  # the server's end of a connection: a wait there is for a request
LOCAL = "socket:local"  # the peer is a process of this machine: a Unix socket, or TCP to an own address
REMOTE = "socket:remote"  # the peer is on another machine
MOST_BYTES = 1 << 20  # of a table of sockets: ten thousand of them
_LISTENS_TCP = "0A"
_LISTENS_UNIX = "00010000"  # the flags of a listening one (__SO_ACCEPTCON)
_CONNECTED = "01"  # TCP_ESTABLISHED
_TCP_FIELDS, _UNIX_FIELDS = 10, 7
_ORDER = -1 if sys.byteorder == "little" else 1


class Sockets:
    """The sockets of all networks at one moment: the tables of each are read once, for they may be long."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._kinds: dict[tuple[int, int], dict[str, str]] = {}

    def kind(self, pid: int, inode: int) -> str:
        """``ACCEPTED``, ``LOCAL`` or ``REMOTE``, by /proc of its process; else ``SOCKET``.

        Accepted: of TCP, one whose local port is that of a socket that listens; of Unix sockets, one that
        bears the name of one that listens. ``SOCKET`` where that cannot be read, it is not connected, or it
        is beyond the first ``MOST_BYTES`` of a table.
        """
        folder = self._proc / str(pid)
        try:
            status = os.stat(folder / "ns" / "net")
            network = status.st_dev, status.st_ino
        except OSError:
            network = 0, pid
        if network not in self._kinds:
            net = folder / "net"
            self._kinds[network] = dict(_unix(net / "unix"))
            self._kinds[network].update(_tcp([*_lines(net / "tcp"), *_lines(net / "tcp6")]))
        return self._kinds[network].get(str(inode), SOCKET)


def _lines(path: Path) -> Iterator[list[str]]:
    """The rows of a table, in words; its head is left out."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES)
    except OSError:
        return
    for line in text.decode("utf-8", "replace").splitlines()[1:]:
        yield line.split()


def _tcp(rows: Iterable[list[str]]) -> Iterator[tuple[str, str]]:
    """(inode, kind) of each TCP socket that is connected; both families, since a peer may be in the other."""
    connected: dict[str, tuple[str, str]] = {}
    listening, own = set(), set()
    for words in rows:
        if len(words) < _TCP_FIELDS:
            continue
        if words[3] == _LISTENS_TCP:
            listening.add(words[1].rpartition(":")[2])
        elif words[3] == _CONNECTED:
            here, there = words[1].partition(":"), words[2].partition(":")
            connected[words[9]] = here[2], there[0]
            own.add(_address(here[0]))
    for inode, (port, peers) in connected.items():
        peer = _address(peers)
        if port in listening:
            yield inode, ACCEPTED
        elif peer is not None:
            yield inode, LOCAL if peer.is_loopback or peer in own else REMOTE


@functools.lru_cache(4096)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address in ``0100007F``: words of four bytes, each in the machine's order; None if it is none."""
    try:
        raw = b"".join(bytes.fromhex(text[at : at + 8])[::_ORDER] for at in range(0, len(text), 8))
        address = ipaddress.ip_address(raw)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _unix(path: Path) -> Iterator[tuple[str, str]]:
    """The same of local sockets, of which most have no name."""
    names: dict[str, str] = {}
    listening = set()
    for words in _lines(path):
        if len(words) < _UNIX_FIELDS:
            continue
        name = words[_UNIX_FIELDS] if len(words) > _UNIX_FIELDS else ""
        if words[3] == _LISTENS_UNIX:
            listening.add(name)
        else:
            names[words[6]] = name
    for inode, name in names.items():
        yield inode, ACCEPTED if name and name in listening else LOCAL
