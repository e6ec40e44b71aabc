"""The daemon's socket as a file: in a folder held open, replacing nothing but a dead socket."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gputop.serve.clients import wire
from replay.folders import made_folder

_QUEUE: Final = 64
_NOT_EXECUTED: Final = 0o111  # as umask: all users may connect
_THERE: Final = 0.5  # s to find out whether a process listens


@dataclass(frozen=True, slots=True)
class Listening:
    """A socket that all users may connect to."""

    socket: socket.socket  # listens; not blocking
    # folder, name: its place; the folder is a descriptor
    folder: int
    name: str
    made: tuple[int, int]  # device and inode of the file

    def close(self) -> None:
        """Close the socket and remove its file, unless that has been replaced."""
        self.socket.close()
        with suppress(OSError):
            if _identity(os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)) == self.made:
                os.unlink(self.name, dir_fd=self.folder)
        os.close(self.folder)


def listen(path: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> Listening:
    """Return a socket at a path that all users may connect to.

    Raises:
        OSError: It cannot be there; ``EADDRINUSE``: a daemon answers there already.
    """
    place, name = os.path.split(path)
    if not name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    folder = made_folder(place)
    try:
        if place == os.path.dirname(wire.SOCKET) and os.fstat(folder).st_mode & 0o755 != 0o755:
            # made by the umask or for root's files: clients are other users
            os.chmod(f"/proc/self/fd/{folder}", 0o755)
        _make_room(folder, name, path, kind)
        return _bound(folder, name, kind)
    except BaseException:
        os.close(folder)
        raise


def _make_room(folder: int, name: str, path: str, kind: socket.SocketKind) -> None:
    """Remove the socket of a daemon that was killed; anything else stays."""
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
        raise FileExistsError(errno.EEXIST, "a file that is not a socket is there", path)
    if facts.st_uid not in (0, os.geteuid()):
        raise FileExistsError(errno.EEXIST, f"a socket of user {facts.st_uid} is there", path)
    with socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(_THERE)
        if probe.connect_ex(_through(folder, name)) in (0, errno.EAGAIN):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), path)
    os.unlink(name, dir_fd=folder)


def _bound(folder: int, name: str, kind: socket.SocketKind) -> Listening:
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    try:
        before = os.umask(_NOT_EXECUTED)  # not a chmod, which a renamed path could lead elsewhere
        try:
            listener.bind(_through(folder, name))
        finally:
            os.umask(before)
        made = _identity(os.stat(name, dir_fd=folder, follow_symlinks=False))
        if kind is socket.SOCK_STREAM:
            listener.listen(_QUEUE)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return Listening(listener, folder, name, made)


def _through(folder: int, name: str) -> str:
    """A path into the held folder, whatever is renamed meanwhile; short enough for a socket address."""
    return f"/proc/self/fd/{folder}/{name}"


def _identity(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino
