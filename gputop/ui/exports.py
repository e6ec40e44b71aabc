"""Saves the screen's content to new files, owned by the user behind sudo; nothing is overwritten."""

from __future__ import annotations

import os
import time

from gputop.process.child import behind_sudo
from gputop.process.terminal import in_browser
from replay.ownership import Output, create

MOST_NAMES = 1_000


class ExportError(Exception):
    """The file could not be written; the text is for the user."""


def save(name: str, text: str) -> str:
    """Write a new file in the current directory.

    Args:
        name: Its name; if that exists, a number is put before the ending.
        text: Its content, written as UTF-8; surrogates are escaped.

    Returns:
        The final name.

    Raises:
        ExportError: It cannot be written; nothing is left behind.
    """
    if in_browser():
        raise ExportError("the browser cannot save files: open the screen in a terminal")
    user = behind_sudo()
    owner = (user.uid, user.gid) if user else None
    stem, ending = os.path.splitext(name)
    for number in range(1, MOST_NAMES):
        path = name if number == 1 else f"{stem}-{number}{ending}"
        try:
            output = create(path, owner)
        except FileExistsError:
            continue
        except OSError as error:
            raise ExportError(
                f"{path} cannot be created here ({error.strerror}): start gputop in a writable folder"
            ) from error
        try:
            _fill(output, path, text)
        finally:
            output.close()
        return path
    raise ExportError(f"{name} and {MOST_NAMES} names like it are taken: remove some of them")


def free_name(path: str) -> str:
    """Return the path, or if it exists a similar one: ``run.msgpack``, ``run-2.msgpack``."""
    stem, ending = os.path.splitext(path)
    names = (path, *(f"{stem}-{number}{ending}" for number in range(2, MOST_NAMES)))
    return next((name for name in names if not os.path.lexists(os.path.expanduser(name))), path)


def stamped(wall_ns: int, utc_offset_s: int, ending: str) -> str:
    """Return a file name with a moment: ``gputop-20261121-190501.json``.

    Args:
        wall_ns: The moment, ns since the epoch.
        utc_offset_s: Its time zone.
        ending: The file's extension.
    """
    moment = time.gmtime(max(wall_ns // 1_000_000_000 + utc_offset_s, 0))
    return f"gputop-{time.strftime('%Y%m%d-%H%M%S', moment)}.{ending}"


def _fill(output: Output, path: str, text: str) -> None:
    try:
        file_only = os.dup(output.descriptor)
        with os.fdopen(file_only, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        output.remove()
        raise ExportError(f"{path} cannot be written ({error.strerror}): nothing was saved") from error
