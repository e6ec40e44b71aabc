"""Opening a session file for writing, also as root in a directory of another user.

``sudo gputop record`` writes where the caller may write, and as the caller: for the moment of opening, the
file-system identity of this one thread (not of the process) is that of the user behind sudo. A symbolic or
hard link planted there thus exposes nothing that the user could not write anyway. The folder stays open from
then on: no path is looked up a second time.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgpack  # type: ignore[import-untyped, unused-ignore]

from replay.coding.file_format import FORMAT_NAME, SessionError
from replay.folders import ForeignLinkError, open_folder

_Make = Callable[[int, str, "tuple[int, int] | None"], int]  # folder, name, owner -> descriptor
_NEW = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_HEAD_BYTES = 64  # the format's name is the first thing in the header


@dataclass(frozen=True, slots=True)
class Output:
    """A file that is written, and the folder it lies in, which is held: it is found there again."""

    descriptor: int
    folder: int
    name: str
    owner: tuple[int, int] | None
    identity: tuple[int, int]

    def remove(self) -> None:
        """Remove the file, unless another has its name by now; before ``close``."""
        with suppress(OSError), acting_as(self.owner):
            facts = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
            if (facts.st_dev, facts.st_ino) == self.identity:
                os.unlink(self.name, dir_fd=self.folder)

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self.folder)


def open_for_writing(path: str, owner: tuple[int, int] | None, overwrite: bool) -> Output:
    """Create the file, or empty an old session file.

    Args:
        path: where the file is to lie.
        owner: user and group id behind sudo; None leaves the file to the caller.
        overwrite: an old session file may be replaced; any other file never is.

    Returns:
        A locked, empty regular file with mode 0600.

    Raises:
        SessionError: it cannot be created, or something else is in its place.
    """

    def make(folder: int, name: str, owner: tuple[int, int] | None) -> int:
        return _open(folder, name, path, owner, overwrite)

    try:
        return _made(path, owner, make)
    except OSError as error:
        raise SessionError(_reason(path, error)) from error


def make_folder(path: str, owner: tuple[int, int] | None) -> None:
    """Make a folder for the segments of a recording; one that is there already must be empty.

    Raises:
        SessionError: it cannot be made, or something is in its place.
    """

    def make(folder: int, name: str, owner: tuple[int, int] | None) -> int:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        if os.listdir(made):
            os.close(made)
            raise SessionError(f"{path} holds something already: remove it or choose another folder")
        return made

    try:
        made = _made(path.rstrip("/"), owner, make)
    except NotADirectoryError as error:
        raise SessionError(
            f"{path} is a file, and segments need a folder: choose another name for the recording"
        ) from error
    except OSError as error:
        raise SessionError(_reason(path, error)) from error
    made.close()


def create_folder(path: str, owner: tuple[int, int] | None) -> None:
    """Create a folder that is not there yet, for the user behind sudo, where that user may.

    Raises:
        OSError: it cannot be created; FileExistsError: something has that name.
    """

    def make(folder: int, name: str, _owner: tuple[int, int] | None) -> int:
        os.mkdir(name, 0o700, dir_fd=folder)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)

    _made_as(path.rstrip("/"), owner, make).close()


def remove_session(path: str, owner: tuple[int, int] | None) -> None:
    """Remove a session file recorded for the user behind sudo; anything else stays.

    Raises:
        OSError: it cannot be removed.
    """

    def open_it(folder: int, name: str, _owner: tuple[int, int] | None) -> int:
        return os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)

    found = _made(path, owner, open_it)
    if is_session(os.pread(found.descriptor, _HEAD_BYTES, 0)):
        found.remove()
    found.close()


def create(path: str, owner: tuple[int, int] | None) -> Output:
    """Create a file that is not there yet, for the user behind sudo.

    Returns:
        An empty file with mode 0600.

    Raises:
        OSError: it cannot be created; FileExistsError: something has that name.
    """

    def make(folder: int, name: str, _owner: tuple[int, int] | None) -> int:
        return os.open(name, os.O_WRONLY | _NEW, 0o600, dir_fd=folder)

    return _made(path, owner, make)


def move_over(fresh: str, path: str, owner: tuple[int, int] | None) -> None:
    """Rename a complete file to another in the same folder, which it replaces.

    Raises:
        OSError: it cannot be moved.
    """

    def make(folder: int, name: str, _owner: tuple[int, int] | None) -> int:
        os.rename(os.path.basename(fresh), name, src_dir_fd=folder, dst_dir_fd=folder)
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)

    _made(path, owner, make).close()


def open_for_appending(path: str, owner: tuple[int, int] | None) -> int:
    """A descriptor of a log, created where there is none, for the user behind sudo.

    Returns:
        A regular file of one name, this user's or the owner's; its content stays.

    Raises:
        OSError: it cannot be opened, or something else is in its place.
    """

    def make(folder: int, name: str, owner: tuple[int, int] | None) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK
        try:
            return os.open(name, flags | _NEW, 0o600, dir_fd=folder)
        except FileExistsError:
            found = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
        facts = os.fstat(found)
        mine = {os.geteuid(), owner[0] if owner else os.geteuid()}
        if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1 and facts.st_uid in mine:
            return found
        os.close(found)
        raise PermissionError(errno.EPERM, "not a file of yours with one name", name)

    output = _made(path, owner, make)
    os.close(output.folder)
    return output.descriptor


def _made(path: str, owner: tuple[int, int] | None, make: _Make) -> Output:
    """Makes a file with the owner's rights; where only root may write, it is root's."""
    try:
        return _made_as(path, owner, make)
    except PermissionError:
        if os.geteuid() != 0 or owner is None or owner[0] == 0:
            raise
    return _made_as(path, None, make)


def _made_as(path: str, owner: tuple[int, int] | None, make: _Make) -> Output:
    directory, name = os.path.split(path)
    if name in ("", ".", ".."):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    as_root = os.geteuid() == 0 and (owner is None or owner[0] == 0)
    with acting_as(owner):
        folder = open_folder(directory, rights_of_root=as_root)
        try:
            descriptor = make(folder, name, owner)
        except BaseException:
            os.close(folder)
            raise
    facts = os.fstat(descriptor)
    return Output(descriptor, folder, name, owner, (facts.st_dev, facts.st_ino))


def _open(folder: int, name: str, path: str, owner: tuple[int, int] | None, overwrite: bool) -> int:
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_NONBLOCK | _NEW, 0o600, dir_fd=folder)
        fresh = True
    except FileExistsError:
        # O_NONBLOCK: opening a FIFO must fail, not wait for its reader.
        descriptor = os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
        fresh = False
    try:
        _claim(descriptor, path, owner, fresh, overwrite)
    except BaseException:
        os.close(descriptor)
        if fresh:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
        raise
    return descriptor


def _claim(descriptor: int, path: str, owner: tuple[int, int] | None, fresh: bool, overwrite: bool) -> None:
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        raise SessionError(f"{path} is not a regular file: choose another name for the recording")
    if not fresh:
        if facts.st_nlink != 1:
            raise SessionError(f"{path} has several names (hard links): choose another for the recording")
        mine = {os.geteuid(), owner[0] if owner else os.geteuid()}
        if facts.st_uid not in mine:
            raise SessionError(f"{path} belongs to another user: choose another name for the recording")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SessionError(
            f"another gputop is recording to {path}: stop it or choose another name"
        ) from error
    except OSError as error:
        # Some network file systems have no locks; a recording without one is better than none.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            raise
    if not fresh and facts.st_size:
        if not is_session(os.pread(descriptor, _HEAD_BYTES, 0)):
            raise SessionError(f"{path} exists and is not a gputop session: remove it or choose another name")
        if not overwrite:
            raise SessionError(
                f"{path} exists already, and is left as it is: choose another name, or --force to replace it"
            )
        os.ftruncate(descriptor, 0)
    os.fchmod(descriptor, 0o600)
    if owner is not None and os.geteuid() == 0 and os.fstat(descriptor).st_uid != owner[0]:
        os.fchown(descriptor, *owner)


def is_session(head: bytes) -> bool:
    """True if a file that starts like this (at least 64 bytes, or all) is a session file."""
    if not head or not (0x80 <= head[0] <= 0x8F or head[0] == 0xDE):
        return False
    start: bytes = msgpack.packb("format") + msgpack.packb(FORMAT_NAME)
    return head[1:].startswith(start) or head[3:].startswith(start)


@contextmanager
def acting_as(owner: tuple[int, int] | None) -> Iterator[None]:
    """Let this thread touch files as ``owner``; does nothing unless root acts for another user."""
    if owner is None or os.geteuid() != 0 or owner[0] == 0:
        yield
        return
    libc = ctypes.CDLL(None)
    group, user = libc.setfsgid(owner[1]), libc.setfsuid(owner[0])
    try:
        if libc.setfsuid(-1) != owner[0]:  # -1 changes nothing and returns the current one
            raise PermissionError(errno.EPERM, "root may not act for another user here")
        yield
    finally:
        libc.setfsuid(user)
        libc.setfsgid(group)


def _reason(path: str, error: OSError) -> str:
    try:
        directory = os.path.dirname(os.path.abspath(path))
    except FileNotFoundError:
        return "the working directory was removed: go to another one, or name the recording by its whole path"
    if isinstance(error, ForeignLinkError):
        return (
            f"{path} cannot be written: {error.filename} on the way to it is a symbolic link that others "
            "than root can change; name the directory that it leads to"
        )
    if error.errno == errno.ELOOP:
        return f"{path} is a symbolic link: choose another name for the recording"
    if error.errno in (errno.ENXIO, errno.EISDIR):
        return f"{path} is not a regular file: choose another name for the recording"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if os.path.isdir(directory):
            return f"{directory} takes no files: choose another place for the recording"
        return f"there is no directory {directory} for the recording: create it or choose another one"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{path} cannot be written ({error.strerror}): choose a directory that you may write to"
    return f"{path} cannot be written ({error.strerror}): choose another place for the recording"
