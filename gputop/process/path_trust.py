"""Checks which other users could change the file at a path, before root loads code from it.

Needs only the standard library, so that it can run before anything else is imported.
"""

from __future__ import annotations

import os
import stat

_MOST_LINKS = 40


def weak_part(path: str) -> str:
    """Return the first part of a path that users other than root could change, or "".

    Links are followed step by step, since a link's owner decides where it leads.

    Args:
        path: A file or folder; it need not exist.
    """
    if not path.startswith("/"):
        return path or "."
    steps, links = path.split("/")[::-1], 0
    here, facts = "/", os.lstat("/")
    while True:
        # in a sticky folder no user replaces what is root's; who may create something there is another thing
        shared = bool(facts.st_mode & 0o022)
        sticky = stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX
        if facts.st_uid != 0 or (shared and not sticky):
            return here
        while steps and steps[-1] in ("", "."):
            steps.pop()
        if not steps:
            return here if shared else ""
        name = steps.pop()
        there = os.path.dirname(here) if name == ".." else os.path.join(here, name)
        try:
            found = os.lstat(there)
        except (FileNotFoundError, NotADirectoryError):
            return here if shared else ""
        except OSError:
            return there
        if not stat.S_ISLNK(found.st_mode):
            here, facts = there, found
            continue
        links += 1
        if found.st_uid != 0 or links > _MOST_LINKS:
            return there
        target = os.readlink(there)
        steps += target.split("/")[::-1]
        if target.startswith("/"):
            here, facts = "/", os.lstat("/")


def trusted_path(path: str) -> str:
    """Return a search path without the folders that users other than root could put programs into."""
    return os.pathsep.join(folder for folder in path.split(os.pathsep) if not weak_part(folder))
