"""Opens files that others may have placed: a pipe would block, and a link lead elsewhere."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from probes.process.openat2 import HERE, NO_MAGIC_LINKS, openat2


def opened(path: str, *, follow: bool = True) -> int:
    """A descriptor of a regular file, for reading.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno != errno.ELOOP or follow:
            raise
        raise OSError(errno.ELOOP, "it is a symbolic link", path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor


# Opens the folder of a file: operations through it stay there, despite renames.

_HELD = os.O_PATH | os.O_CLOEXEC
_MOST_LINKS = 40


class ForeignLinkError(PermissionError):
    """A link on the way can be changed by users other than root; its ``filename`` is its name."""


def open_folder(path: str, *, rights_of_root: bool) -> int:
    """A descriptor of a folder, for ``dir_fd``.

    Args:
        path: The folder, ``""`` for the current one.
        rights_of_root: Root opens it as itself: of links, only those are followed that root alone can change.
            Otherwise the rights decide, of this user or of the one whose identity is assumed.

    Raises:
        OSError: It cannot be opened; ForeignLinkError: for its way.
    """
    path = path or "."
    if rights_of_root:
        return _walked(path)
    if os.geteuid() != 0:
        return os.open(path, _HELD | os.O_DIRECTORY)
    return _without_magic(path)


def made_folder(path: str) -> int:
    """``open_folder`` for root's or this user's folders, made where they are missing; mode 0755.

    Raises:
        OSError: It cannot be made or opened; ForeignLinkError: for its way.
    """
    return _walked(path or ".", make=True)


def _without_magic(path: str) -> int:
    """As a user would get there: not by those links of /proc that lead past the rights of folders."""
    flags = _HELD | os.O_DIRECTORY
    try:
        return openat2(HERE, path, flags, NO_MAGIC_LINKS)
    except OSError as error:
        # EPERM: a filter of system calls that does not know it, as containers had
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return os.open(path, flags)
        raise


def _walked(path: str, *, make: bool = False) -> int:
    """Goes step by step, each from the folder before, which is held: nothing is looked up twice."""
    here = os.open("/" if path.startswith("/") else ".", _HELD | os.O_DIRECTORY)
    steps, links = path.split("/")[::-1], 0
    try:
        while steps:
            name = steps.pop()
            if name in ("", "."):
                continue
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=here)
            there = os.open(name, _HELD | os.O_NOFOLLOW, dir_fd=here)
            try:
                facts = os.fstat(there)
                if stat.S_ISLNK(facts.st_mode):
                    links += 1
                    target = _target(there, facts, os.fstat(here), name, links)
                    steps += target.split("/")[::-1]
                    if target.startswith("/"):
                        top = os.open("/", _HELD | os.O_DIRECTORY)
                        os.close(here)
                        here = top
                elif stat.S_ISDIR(facts.st_mode):
                    here, there = there, here
                else:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            finally:
                os.close(there)
    except BaseException:
        os.close(here)
        raise
    return here


def _target(link: int, facts: os.stat_result, folder: os.stat_result, name: str, links: int) -> str:
    """Where a link leads that only root could have put there."""
    writable = folder.st_mode & 0o022 and not folder.st_mode & stat.S_ISVTX
    if facts.st_uid != 0 or folder.st_uid != 0 or writable:
        raise ForeignLinkError(errno.EACCES, "a link of another user", name)
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return os.readlink("", dir_fd=link)
