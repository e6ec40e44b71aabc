"""Which end of a connection a socket is: real sockets, and tables of /proc that are odd."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from probes.proc.sockets import ACCEPTED, LOCAL, REMOTE, SOCKET, Sockets


def inode(one: socket.socket) -> int:
    return os.fstat(one.fileno()).st_ino


def connected(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    """(the client's end, the server's end)."""
    client = socket.socket(listener.family)
    client.connect(listener.getsockname())
    return client, listener.accept()[0]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX])
def test_the_servers_end_is_distinguished_from_the_clients(
    family: socket.AddressFamily, tmp_path: Path
) -> None:
    address = {socket.AF_INET: ("127.0.0.1", 0), socket.AF_INET6: ("::1", 0)}.get(family)
    with socket.socket(family) as listener:
        try:
            listener.bind(address or str(tmp_path / "s"))
        except OSError:
            pytest.skip("no such addresses here")
        listener.listen()
        client, server = connected(listener)
        with client, server:
            assert Sockets().kind(os.getpid(), inode(server)) == ACCEPTED
            assert Sockets().kind(os.getpid(), inode(client)) == LOCAL


def test_a_pair_of_sockets_has_no_server() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert Sockets().kind(os.getpid(), inode(one)) == LOCAL
        assert Sockets().kind(os.getpid(), inode(other)) == LOCAL


def test_what_cannot_be_read_is_no_server(tmp_path: Path) -> None:
    assert Sockets(tmp_path).kind(1, 1) == SOCKET
    net = tmp_path / "1" / "net"
    net.mkdir(parents=True)
    (net / "tcp").write_bytes(b"head\n  0: short\n\xff\xfe binary \x00\n  0: zz:1 zz:2 01 a b c d e 1\n")
    (net / "unix").write_text("Num RefCount\n0: 1 0 zz\n")
    assert Sockets(tmp_path).kind(1, 1) == SOCKET


@pytest.mark.parametrize(
    ("peer", "kind"),
    [
        ("0100007F:1F90", LOCAL),  # 127.0.0.1
        ("0200A8C0:1F90", LOCAL),  # 192.168.0.2: an address of this machine, as another row shows
        ("0900A8C0:1F90", REMOTE),  # 192.168.0.9
    ],
)
def test_a_peer_at_an_own_address_is_on_this_machine(tmp_path: Path, peer: str, kind: str) -> None:
    net = tmp_path / "1" / "net"
    net.mkdir(parents=True)
    row = "  {}: {} {} 01 00000000:00000000 00:00000000 00000000  0 0 {} 1\n"
    (net / "tcp").write_text(
        "head\n"
        + row.format(0, "0200A8C0:C001", peer, 41)
        + row.format(1, "0200A8C0:0016", "0100A8C0:9999", 42)
    )
    assert Sockets(tmp_path).kind(1, 41) == kind


def test_a_mapped_address_is_that_which_it_stands_for(tmp_path: Path) -> None:
    net = tmp_path / "1" / "net"
    net.mkdir(parents=True)
    mapped = "0000000000000000FFFF00000100007F"
    (net / "tcp6").write_text(f"head\n  0: {mapped}:C001 {mapped}:1F90 01 0 0 0 0 0 41 1\n")
    assert Sockets(tmp_path).kind(1, 41) == LOCAL
