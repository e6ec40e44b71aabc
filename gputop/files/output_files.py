"""Files that are made of recordings: over nothing that is there unless asked to, and whole or not at all."""

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
    """The rule for every file that gputop writes: what is there is left alone, unless ``--force`` says so.

    An empty file, as mktemp makes one, holds nothing to lose; what is no regular file is refused later on, by
    whoever opens it.

    Raises:
        GputopError: Something is there, or may not be replaced.
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
    """Empties the folder of an older recording in segments, for ``record --force``.

    Raises:
        GputopError: Something else is in it.
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
    """A session file to write into; what goes wrong takes it away again.

    Args:
        header: Of the file.
        sums: Adds up what is written, for the end of the file.
        force: Takes the place of what is there, once it is whole.

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
    """A file of any other kind to write into; what goes wrong takes it away again.

    Args:
        force: Takes the place of what is there, once it is whole.

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
    """A folder to write files into; what goes wrong takes it away again, if it is empty by then.

    Args:
        force: Takes the place of a folder that holds nothing but files with the ending.
        ending: Of what is written into it.

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
    """Where to write the file: in its place, or beside what it takes the place of at the end."""
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
    """Whom new files belong to under sudo; None: the process."""
    user = behind_sudo()
    return (user.uid, user.gid) if user else None


def not_written(path: str, cause: str | None) -> GputopError:
    """What is said of an output that was taken away again."""
    return GputopError(
        f"{path} cannot be written: {cause}; nothing of it is left there: choose another place"
    )
