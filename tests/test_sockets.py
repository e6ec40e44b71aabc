"""Which end of a connection a socket is: real sockets, and tables of /proc that are odd."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from probes.proc.sockets import Sockets


def inode(one: socket.socket) -> int:
    return os.fstat(one.fileno()).st_ino


def connected(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    """(the client's end, the server's end)."""
    client = socket.socket(listener.family)
    client.connect(listener.getsockname())
    return client, listener.accept()[0]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX])
def test_the_servers_end_is_told_from_the_clients(family: socket.AddressFamily, tmp_path: Path) -> None:
    address = {socket.AF_INET: ("127.0.0.1", 0), socket.AF_INET6: ("::1", 0)}.get(family)
    with socket.socket(family) as listener:
        try:
            listener.bind(address or str(tmp_path / "s"))
        except OSError:
            pytest.skip("no such addresses here")
        listener.listen()
        client, server = connected(listener)
        with client, server:
            assert Sockets().is_accepted(os.getpid(), inode(server))
            assert not Sockets().is_accepted(os.getpid(), inode(client))


def test_a_pair_of_sockets_has_no_server() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert not Sockets().is_accepted(os.getpid(), inode(one))


def test_what_cannot_be_read_is_no_server(tmp_path: Path) -> None:
    assert not Sockets(tmp_path).is_accepted(1, 1)
    net = tmp_path / "1" / "net"
    net.mkdir(parents=True)
    (net / "tcp").write_bytes(b"head\n  0: short\n\xff\xfe binary \x00\n")
    (net / "unix").write_text("Num RefCount\n0: 1 0 zz\n")
    assert not Sockets(tmp_path).is_accepted(1, 1)
