"""The text of a source file that a program named: sought within that program's root, read within bounds."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from probes.files import file_reader, untrusted_files
from probes.process.openat2 import IN_ROOT, NO_MAGIC_LINKS, openat2

MOST_BYTES = 4 << 20
_PLACE = os.O_PATH | os.O_CLOEXEC
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Text:
    """A file's text: where it was found, its bytes, when it was changed last (ns since the epoch)."""

    path: str
    data: bytes
    changed_ns: int


def text_of(file: str, pid: int | None) -> Text:
    """Reads a source file, by the child where there is one.

    Args:
        file: A name from a program or a recording.
        pid: The process that runs it now, whose root and folder count; None: this machine's.

    Raises:
        OSError: There is none, or it cannot be read; ENOEXEC where it is no plain file, EFBIG where it is too
            long, ETIMEDOUT where it did not come to an end.
        ValueError: No file has such a name.
    """
    if "\0" in file:
        raise ValueError("no file has such a name")
    what = _places(file, pid)
    if (reader := file_reader.current()) is None:
        found = opened(what)
        with found.file:
            return Text(*read(found))
    try:
        (path, data, changed_ns), _ = reader.request(
            "text", what, (hash(os.path.dirname(file)), hash(file)), file
        )
        return Text(str(path), bytes(data), int(changed_ns))
    except (file_reader.UnreadableError, TypeError, ValueError) as error:
        raise OSError(errno.EIO, str(error), file) from error


def _places(file: str, pid: int | None) -> list[list[str]]:
    """[root, path] of each place where it may be; "" for this machine's own root."""
    if pid is None:
        return [["", os.path.abspath(file)]]  # the child may stand elsewhere
    if file.startswith("/"):
        return [[f"/proc/{pid}/root", file], ["", file]]
    return [["", f"/proc/{pid}/cwd/{file}"]]


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that is open: itself, its path by its own name, when it was changed last."""

    file: untrusted_files.File
    path: str
    changed_ns: int


def opened(places: Iterable[list[str]]) -> Opened:
    """The first of the files that exists, open for reading. Raises OSError."""
    for root, path in places:
        with suppress(FileNotFoundError), _placed(root, path) as place:
            file = untrusted_files.reading(place.descriptor)
            if file.size > MOST_BYTES:
                file.close()
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            return Opened(file, os.readlink(file.path), file.version[1])
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _placed(root: str, path: str) -> untrusted_files.File:
    """Links lead where they lead for the program: never out of its root."""
    if not root:
        return untrusted_files.placed(path)
    folder = os.open(root, _PLACE | os.O_DIRECTORY)
    try:
        place = openat2(folder, path, _PLACE, IN_ROOT | NO_MAGIC_LINKS)
    except OSError as error:
        if error.errno not in (
            errno.ENOSYS,
            errno.EPERM,
        ):  # before Linux 5.6, or a filter that does not know it
            raise
        return untrusted_files.placed(root + path)
    finally:
        os.close(folder)
    try:
        return untrusted_files.placed(f"/proc/self/fd/{place}")
    finally:
        os.close(place)


def read(found: Opened) -> list[Any]:
    """[path, bytes, time of the last change]; of a file that became shorter the rest. Raises OSError."""
    parts: list[bytes] = []
    while data := found.file.read(sum(map(len, parts)), _CHUNK):
        parts.append(data)
    return [found.path, b"".join(parts), found.changed_ns]
