"""Keeps compiled BPF programs between starts, in a folder that only this user can write.

With any damage gputop compiles as if there were none. The kernel's verifier checks every program
again; it does not know a program's purpose, though, so files that others could have written are not read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

ROOTS = Path("/var/cache/gputop/bpf")
KEPT = 32  # entries of 80 kB; a text for each set of options, and for each kernel

_MOST_BYTES = 16 << 20
_DIGEST_BYTES = hashlib.sha256().digest_size
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NoCacheError(Exception):
    """The folder is not there, or not to be trusted; the message is a sentence about it."""


def folder_of(user: int, environment: Mapping[str, str]) -> Path | None:
    """Where a user's entries are; None for one without a home."""
    if user == 0:
        return ROOTS
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        home = Path(environment.get("HOME", ""))
        if not home.is_absolute():
            return None
        base = home / ".cache"
    return base / "gputop" / "bpf"


def read(folder: Path, key: str) -> bytes | None:
    """The data kept under a key; None when there is none, or none that can be trusted.

    Raises:
        NoCacheError: As for the folder.
    """
    with _opened(folder) as place:
        try:
            file = os.open(key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
        except OSError:
            return None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or _doubt(found) or found.st_size > _MOST_BYTES:
                return None
            content = os.read(file, found.st_size)
        except OSError:
            return None
        finally:
            os.close(file)
        with suppress(OSError):
            os.utime(key, dir_fd=place, follow_symlinks=False)  # those used last are kept
    digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return data if digest == _digest(key, data) else None


def write(folder: Path, key: str, data: bytes) -> None:
    """Keeps data under a key, in place of the former, and drops the least recently used.

    Raises:
        NoCacheError: As for the folder, or it cannot be written.
    """
    with _opened(folder) as place:
        name = f"{key}.{os.urandom(4).hex()}"
        try:
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=place)
            try:
                with os.fdopen(file, "wb") as entry:
                    entry.write(_digest(key, data) + data)
                os.rename(name, key, src_dir_fd=place, dst_dir_fd=place)
            except OSError:
                with suppress(OSError):
                    os.unlink(name, dir_fd=place)
                raise
            _forget(place)
        except OSError as error:
            raise NoCacheError(f"{folder} cannot be written: {error.strerror}") from error


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + data).digest()


def _doubt(found: os.stat_result) -> str:
    """Why a folder or file may be another user's work; empty when it cannot be."""
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}"
    return "can be written by others" if found.st_mode & _WRITABLE_BY_OTHERS else ""


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The folder's descriptor: all later access goes to the folder that was checked."""
    try:
        folder.parent.mkdir(0o755, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir(0o700)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise NoCacheError(f"{folder} cannot be used: {error.strerror}") from error
    try:
        if doubt := _doubt(os.fstat(place)):
            raise NoCacheError(f"{folder} is not used: it {doubt}")
        yield place
    finally:
        os.close(place)


def _forget(place: int) -> None:
    """Removes all but the entries used last, and unfinished files."""
    ages = []
    for name in os.listdir(place):
        with suppress(OSError):  # another gputop may be at it as well
            ages.append((os.stat(name, dir_fd=place, follow_symlinks=False).st_mtime_ns, name))
    for _, name in sorted(ages, reverse=True)[KEPT:]:
        with suppress(OSError):
            os.unlink(name, dir_fd=place)
