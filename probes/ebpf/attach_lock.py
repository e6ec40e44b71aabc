"""The turn to attach or detach perf's uprobes: two locks that no other user can hold."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

ROOTS = Path("/run/gputop")

_TURN, _QUEUE = "turn", "queue"
# a detacher keeps the turn for one link, a third of a second; one that keeps it far longer has stopped
PATIENCE_S = 10.0
# a detacher leaves the turn free for 5 ms (its _PAUSE_S): a waiting process tries more often
_LOOK_S = 0.001
_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def folder_of(user: int, environment: Mapping[str, str]) -> Path | None:
    """Where a user's locks are: root's in /run, another's in the folder of his session; None without one."""
    if user == 0:
        return ROOTS
    base = Path(environment.get("XDG_RUNTIME_DIR", ""))
    return base / "gputop" if base.is_absolute() else None


def opened(folder: Path | None = None) -> tuple[int, int]:
    """Descriptors to lock: of the turn, and of the queue for it.

    Both are files of gputop's user that no other may open, since a user who can open a file can lock it for
    good. Where there can be no such files, they are two of this process alone: then there are no turns, and a
    new gputop waits for the probes of the previous one.

    Raises:
        OSError: EMFILE, there is no descriptor left.
    """
    folder = folder or folder_of(os.geteuid(), os.environ)
    if folder is not None:
        with suppress(OSError):
            return _files(folder)
    return os.memfd_create(_TURN), os.memfd_create(_QUEUE)


def _files(folder: Path) -> tuple[int, int]:
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check(place, _WRITABLE_BY_OTHERS)
        turn = _file(place, _TURN)
        try:
            return turn, _file(place, _QUEUE)
        except OSError:
            os.close(turn)
            raise
    finally:
        os.close(place)


def _file(place: int, name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=place)
    try:
        _check(file, _FOR_OTHERS)
    except OSError:
        os.close(file)
        raise
    return file


def _check(descriptor: int, forbidden: int) -> None:
    """Raises PermissionError for a file of another user, or one that grants others a forbidden right."""
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or found.st_mode & forbidden:
        raise PermissionError("not ours alone")


@contextmanager
def turn(folder: Path | None = None) -> Iterator[None]:
    """Keeps detachers of earlier gputops waiting meanwhile.

    Attaching and detaching need the same lock of the kernel, for a third of a second each: without turns, the
    next gputop would wait until the last probe is gone. After 10 s without the turn it goes on all the same,
    which is slow and does no harm.
    """
    held, queue = opened(folder)
    os.close(queue)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _locked(held) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(held)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
