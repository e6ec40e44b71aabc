"""Files that only root or the current user can have written, on this machine's own file systems."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePath

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def doubt(path: Path, identity: tuple[int, int]) -> str:
    """Why others may have a hand in a file, as a part of a sentence; empty when they cannot.

    The file and every folder of its path must belong to root or to this user, and be writable by no other.
    In a folder with the sticky bit others may make files, but not replace these.
    """
    if PurePath("/proc") in PurePath(path).parents:
        return "it is a container's file, or has been removed since it was mapped"
    real = Path(os.path.realpath(path))
    try:
        if others := others_on(real):
            return others
        found = real.lstat()
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) != identity:
        return "another file took its place meanwhile"
    return ""


def others_on(real: Path) -> str:
    """Other users who may change a path without links, or a folder of it, as a part of a sentence; or "".

    Raises:
        OSError: It is not there.
    """
    for part in (*reversed(real.parents), real):
        found = part.lstat()
        if found.st_uid not in (0, os.geteuid()):
            return f"{part} belongs to user {found.st_uid}, who may have written it"
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if found.st_mode & _OTHERS_WRITE and not sticky:
            return f"others than its owner may write {part}"
    return ""
