"""Files that are made of recordings: never over one that is there, and whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from gputop.errors import GputopError
from gputop.process.child import behind_sudo
from replay.format import SessionError
from replay.ownership import create
from replay.writer import SessionWriter, Sums


@contextmanager
def new_session(path: str, header: Mapping[str, Any], *, sums: Sums | None = None) -> Iterator[SessionWriter]:
    """A session file to write into; what goes wrong takes it away again.

    Args:
        path: Where it is to lie; nothing may be there.
        header: Of the file.
        sums: Adds up what is written, for the end of the file.

    Raises:
        GputopError: It cannot be written there.
    """
    if os.path.lexists(path):
        raise _there(path)
    user = behind_sudo()
    owner = (user.uid, user.gid) if user else None
    try:
        writer = SessionWriter(path, header, owner=owner, overwrite=False, sums=sums)
        try:
            yield writer
            writer.close()
        except BaseException:
            writer.discard()
            raise
    except SessionError as error:
        raise GputopError(str(error)) from error


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """A file of any other kind to write into; what goes wrong takes it away again.

    Args:
        path: Where it is to lie; nothing may be there.

    Raises:
        GputopError: It cannot be written there.
    """
    user = behind_sudo()
    try:
        output = create(path, (user.uid, user.gid) if user else None)
    except FileExistsError as error:
        raise _there(path) from error
    except OSError as error:
        raise GputopError(f"{path} cannot be written: {error.strerror}; choose another place") from error
    try:
        with open(output.descriptor, "wb", closefd=False) as file:
            yield file
    except OSError as error:
        output.remove()
        raise GputopError(f"{path} cannot be written: {error.strerror}; choose another place") from error
    except BaseException:
        output.remove()
        raise
    finally:
        output.close()


def _there(path: str) -> GputopError:
    return GputopError(f"{path} exists already, and is left as it is: choose another name, or remove it")


@contextmanager
def new_folder(path: str) -> Iterator[None]:
    """A folder to write files into; what goes wrong takes it away again, if it is empty by then.

    Args:
        path: Where it is to lie; nothing may be there.

    Raises:
        GputopError: It cannot be made there.
    """
    user = behind_sudo()
    try:
        os.mkdir(path, 0o700)
        if user is not None:
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
    except FileExistsError as error:
        raise _there(path) from error
    except OSError as error:
        raise GputopError(f"{path} cannot be made: {error.strerror}; choose another place") from error
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.rmdir(path)
        raise
