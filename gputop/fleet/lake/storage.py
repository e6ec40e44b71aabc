"""Storage of a lake: a folder, or a URL of object storage. Each file appears whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol
from uuid import uuid4

from gputop.errors import GputopError
from gputop.files.output_files import new_file, new_folder
from gputop.fleet.lake.urls import is_url, local_name, opened, shown, storage_errors, written
from replay import folders

UNFINISHED: Final = ".unfinished-"
MOST_BYTES: Final = 256 << 20  # of a file read whole; the list of a million sessions is smaller
_OLD_S = 86400.0
_MARK = "pieces/lake"  # a storage's folder exists once it holds a file


class Place(Protocol):
    """Files by names with ``/`` in them."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context manager: make it if needed, and exclude other runs if possible."""
        yield

    def listing(self, folder: str) -> list[str]:
        """Return the sorted names in a folder, none if it is missing. ``""``: the place itself."""
        ...

    def left(self) -> list[str]:
        """Return all files that a killed run may have left, among others."""
        ...

    def read(self, names: Sequence[str]) -> list[bytes]:
        """Return the content of files."""
        ...

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write new files."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Remove files, and folders with their content."""
        ...

    @contextmanager
    def local(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Context manager: local paths of files."""
        yield []


def place_of(lake: str) -> Place:
    return _Storage(lake) if is_url(lake) else _Folder(local_name(lake))


class _Folder:
    """A folder of this machine, locked while files are added."""

    def __init__(self, root: str) -> None:
        self._root = root

    @contextmanager
    def held(self) -> Iterator[None]:
        if not os.path.lexists(self._root):
            with new_folder(self._root):
                pass
        try:
            held = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise GputopError(
                f"{self._root} cannot be used as a lake: {error.strerror}; choose a folder"
            ) from error
        try:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise GputopError(f"another run adds to {self._root}: wait until it has ended") from error
            yield
        finally:
            os.close(held)

    def listing(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(os.path.join(self._root, folder)))
        except FileNotFoundError as error:
            if folder:
                return []
            raise self._unreadable(error) from error
        except OSError as error:
            raise self._unreadable(error) from error

    def left(self) -> list[str]:
        found = []
        for folder, _below, names in os.walk(self._root):
            at = os.path.relpath(folder, self._root)
            found += [os.path.normpath(os.path.join(at, name)) for name in names]
        return found

    def read(self, names: Sequence[str]) -> list[bytes]:
        found = []
        for name in names:
            try:
                with os.fdopen(folders.opened(os.path.join(self._root, name)), "rb") as file:
                    found.append(file.read(MOST_BYTES + 1))
                if len(found[-1]) > MOST_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            except OSError as error:
                raise self._unreadable(error) from error
        return found

    def write(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self._folders(os.path.dirname(name))
            path = os.path.join(self._root, name)
            whole = os.path.join(os.path.dirname(path), UNFINISHED + uuid4().hex)
            try:
                with new_file(whole) as file:
                    file.write(data)
                os.rename(whole, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(whole)
                raise

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            path = os.path.join(self._root, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
                continue
            with suppress(OSError):
                os.unlink(path)
                while (path := os.path.dirname(path)) != self._root:
                    os.rmdir(path)  # if it is empty

    @contextmanager
    def local(self, names: Sequence[str]) -> Iterator[list[str]]:
        paths = [os.path.join(self._root, name) for name in names]
        for path in paths:  # DuckDB would block on a pipe
            try:
                os.close(folders.opened(path))
            except OSError as error:
                raise self._unreadable(error) from error
        yield paths

    def _folders(self, folder: str) -> None:
        path = self._root
        for part in folder.split("/"):
            path = os.path.join(path, part)
            if not os.path.lexists(path):
                with new_folder(path):
                    pass

    def _unreadable(self, error: OSError) -> GputopError:
        return GputopError(f"{self._root} cannot be read: {error.strerror}; gputop fleet ingest makes a lake")


class _Storage:
    """Object storage, which has no locks: duplicates of two simultaneous runs are resolved on reading."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._filesystem, root = opened(url)
        self._root = root.rstrip("/")

    @contextmanager
    def held(self) -> Iterator[None]:
        # a missing right to write is reported before minutes of work
        self.write({_MARK: b"gputop fleet\n"})
        yield

    def listing(self, folder: str) -> list[str]:
        with storage_errors(self._url, "read"):
            try:
                found = self._filesystem.ls(self._at(folder), detail=False)
            except FileNotFoundError:
                if folder:
                    return []
                raise
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)

    def left(self) -> list[str]:
        """Only old ones: another run may be writing newer ones."""
        with storage_errors(self._url, "read"):
            found = self._filesystem.find(self._root, detail=True)
        return [
            str(name).removeprefix(self._root).lstrip("/")
            for name, facts in found.items()
            if _age_s(facts) > _OLD_S
        ]

    def read(self, names: Sequence[str]) -> list[bytes]:
        if not names:
            return []
        paths = [self._at(name) for name in names]
        with storage_errors(self._url, "read"):
            found = self._filesystem.cat(paths)  # all at once
        return [found[path] for path in paths]

    def write(self, files: Mapping[str, bytes]) -> None:
        with storage_errors(self._url, "written"):
            self._filesystem.pipe({self._at(name): data for name, data in files.items()})

    def remove(self, names: Sequence[str]) -> None:
        with storage_errors(self._url, "written"):
            self._filesystem.rm([self._at(name) for name in names], recursive=True)

    @contextmanager
    def local(self, names: Sequence[str]) -> Iterator[list[str]]:
        with TemporaryDirectory(prefix="gputop-fleet-") as folder:
            places = [os.path.join(folder, f"{number}.parquet") for number in range(len(names))]
            if names:
                with storage_errors(self._url, "read"):
                    self._filesystem.get([self._at(name) for name in names], places)
            yield places

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def __repr__(self) -> str:
        return shown(self._url)


def _age_s(facts: Mapping[str, Any]) -> float:
    """Age of a file, s; 0 if the storage does not list it."""
    moment = written(facts)
    if isinstance(moment, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    if isinstance(moment, datetime):
        zone = moment.tzinfo or timezone.utc
        return time.time() - moment.replace(tzinfo=zone).timestamp()
    return time.time() - float(moment) if isinstance(moment, int | float) else 0.0
