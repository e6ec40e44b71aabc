"""Output files: never over an existing file unless forced, and complete or not there at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO
from uuid import uuid4

from gputop.errors import GputopError
from gputop.process.child import behind_sudo
from replay.coding.file_format import SessionError
from replay.ownership import acting_as, create, create_folder, move_over, remove_session
from replay.segments import SUFFIX
from replay.writer import SessionWriter, Sums, WriteError


def refuse_existing(path: str, *, force: bool) -> None:
    """Raise GputopError if there is something at the path, unless ``force`` is set.

    An empty file, as of mktemp, counts as nothing. Paths that are no regular file are refused when they are
    opened.
    """
    try:
        facts = os.lstat(path)
    except OSError:
        return
    if stat.S_ISDIR(facts.st_mode):
        there = bool(os.listdir(path))
    else:
        there = stat.S_ISLNK(facts.st_mode) or (stat.S_ISREG(facts.st_mode) and facts.st_size > 0)
    if there and not force:
        raise GputopError(
            f"{path} exists already, and is left as it is: choose another name, or --force to replace it"
        )


def clear_segments(path: str) -> None:
    """Empty the folder of an older recording in segments, for ``record --force``.

    Raises:
        GputopError: It holds other files.
    """
    if not os.path.isdir(path):
        return
    others = [name for name in os.listdir(path) if not name.endswith(SUFFIX)]
    if others:
        raise GputopError(
            f"{path} holds {others[0]}, which is no segment of a recording: choose another folder"
        )
    owner = owner_of_new()
    for name in os.listdir(path):
        with suppress(OSError):
            remove_session(os.path.join(path, name), owner)


@contextmanager
def new_session(
    path: str, header: Mapping[str, Any], *, sums: Sums | None = None, force: bool = False
) -> Iterator[SessionWriter]:
    """Context manager: a session file to write, removed if an exception leaves the block.

    Args:
        sums: Sums of the written records, for the end of the file.
        force: Replace an existing file, once the new one is complete.

    Raises:
        GputopError: It cannot be written there.
    """
    with _placed(path, force=force) as place:
        try:
            writer = SessionWriter(place, header, owner=owner_of_new(), overwrite=False, sums=sums)
            try:
                yield writer
                writer.close()
            except BaseException:
                writer.discard()
                raise
        except WriteError as error:
            raise not_written(path, error.cause) from error
        except SessionError as error:
            raise GputopError(str(error).replace(place, path)) from error


@contextmanager
def new_file(path: str, *, force: bool = False) -> Iterator[BinaryIO]:
    """Context manager: a file of any other kind to write, removed if an exception leaves the block.

    Args:
        force: Replace an existing file, once the new one is complete.

    Raises:
        GputopError: It cannot be written there.
    """
    with _placed(path, force=force) as place:
        try:
            output = create(place, owner_of_new())
        except OSError as error:
            raise not_written(path, error.strerror) from error
        try:
            with open(output.descriptor, "wb", closefd=False) as file:
                yield file
        except OSError as error:
            output.remove()
            raise not_written(path, error.strerror) from error
        except BaseException:
            output.remove()
            raise
        finally:
            output.close()


@contextmanager
def new_folder(path: str, *, force: bool = False, ending: str = "") -> Iterator[str]:
    """Context manager: a folder to write files into, removed if an exception leaves the block and it is
    empty.

    Args:
        force: Replace an existing folder that holds only files with the ending.
        ending: Suffix of the files in it.

    Yields:
        The path of the folder while it is written.

    Raises:
        GputopError: It cannot be made there.
    """
    refuse_existing(path, force=force)
    old = os.listdir(path) if os.path.isdir(path) else None
    if old is not None and (other := next((name for name in old if not name.endswith(ending)), "")):
        raise GputopError(f"{path} holds {other}, which is no file of an export: choose another name")
    place, owner = path if old is None else _beside(path), owner_of_new()
    try:
        create_folder(place, owner)
    except OSError as error:
        raise GputopError(f"{path} cannot be made: {error.strerror}; choose another place") from error
    try:
        yield place
        if old is not None:
            with acting_as(owner):
                for name in old:
                    os.unlink(os.path.join(path, name))
                os.rmdir(path)
                os.rename(place, path)
    except BaseException:
        with suppress(OSError), acting_as(owner):
            os.rmdir(place)
        raise


@contextmanager
def _placed(path: str, *, force: bool) -> Iterator[str]:
    """Context manager: the path to write to, which replaces an existing file at the end."""
    refuse_existing(path, force=force)
    if not os.path.lexists(path):
        yield path
        return
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise GputopError(f"{path} is not a regular file, and is left as it is: choose another name")
    place = _beside(path)
    yield place
    try:
        move_over(place, path, owner_of_new())
    except OSError as error:
        with suppress(OSError):
            os.unlink(place)
        raise not_written(path, error.strerror) from error


def _beside(path: str) -> str:
    folder, name = os.path.split(path.rstrip("/"))
    return os.path.join(folder, f".{name}.{uuid4().hex[:8]}")


def owner_of_new() -> tuple[int, int] | None:
    """Return (uid, gid) of new files under sudo; None: the process's own."""
    user = behind_sudo()
    return (user.uid, user.gid) if user else None


def not_written(path: str, cause: str | None) -> GputopError:
    """Return the error of an output that could not be written and has been removed."""
    return GputopError(
        f"{path} cannot be written: {cause}; nothing of it is left there: choose another place"
    )
