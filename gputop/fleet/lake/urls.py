"""Object storage by URL, through fsspec; credentials are never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any, Final

from gputop.errors import GputopError, install_command

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_LOGIN: Final = re.compile(r"(?<=://)(?:[^/@\s:]*|[^/@\s:]+:\S*)@")  # a password may hold any character
_QUERY: Final = re.compile(r"(://[^\s?'\"]*)\?[^\s'\"]*")  # of signed URLs
_SECRETS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_WRITTEN: Final = ("LastModified", "mtime", "updated", "created")  # each storage has its own key
_S3: Final = ("s3", "s3a")


def is_url(name: str) -> bool:
    """True if the name is a URL of anything but a local file."""
    return bool(_URL.match(name)) and not name.lower().startswith("file://")


def local_name(name: str) -> str:
    """Return the path of a local file, without ``file://``."""
    return name[len("file://") :] if name.lower().startswith("file://") else name


def shown(text: str) -> str:
    """Return a URL, or a text with URLs, without credentials."""
    text = _QUERY.sub(r"\1", _LOGIN.sub("", text))
    for name in _SECRETS:
        secret = os.environ.get(name)
        text = text.replace(secret, "***") if secret else text
    return text


def called(place: str) -> str:
    """Return the last part of a folder's or URL's name, without credentials."""
    return (
        shown(place).rstrip("/").rpartition("/")[2]
        if is_url(place)
        else os.path.basename(os.path.abspath(local_name(place)))
    )


def opened(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Raises:
        GputopError: fsspec or its backend is not installed, or there is no such storage.
    """
    try:
        fsspec: Any = import_module("fsspec")
    except ImportError as error:
        raise GputopError(
            f"fsspec is not installed, which reads {shown(url)}: {install_command('storage')}"
        ) from error
    with storage_errors(url, "opened"):
        try:
            # no cache: other runs' files must be visible
            filesystem, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            known = url.lower().partition("://")[0] in _S3
            more = install_command("storage") if known else f"install fsspec's backend: {error}"
            raise GputopError(f"{shown(url)} cannot be opened without another package: {more}") from error
    return filesystem, str(path)


@contextmanager
def storage_errors(url: str, what: str) -> Iterator[None]:
    """Context manager: turn a storage's exception into a sentence without credentials.

    Args:
        url: The URL.
        what: The failed action: ``read``, ``written``.

    Raises:
        GputopError: The storage refused.
    """
    try:
        yield
    except GputopError:
        raise
    except Exception as error:  # each storage has its own exceptions
        text = " ".join(shown(str(error)).split()) or type(error).__name__
        raise GputopError(
            f"{shown(url)} cannot be {what}: {text}; is the name right, and may you use it? Credentials and "
            "address come from the storage's own variables and files (AWS_…)"
        ) from None


def version_of(name: str, facts: Mapping[str, Any]) -> str:
    """Return a value that changes with a file's content, from its listing: a hash, or size and time."""
    for key in ("ETag", "etag", "md5Hash", "content_md5"):
        if facts.get(key):
            return f"{facts[key]} {facts.get('size')}".replace('"', "")
    return f"{shown(name)} {facts.get('size')} {written(facts)}"


def written(facts: Mapping[str, Any]) -> Any:
    """Return the time of a file's last change in its listing, or None."""
    return next((facts[key] for key in _WRITTEN if facts.get(key)), None)


@contextmanager
def fetched(url: str, segments: Sequence[str] = ()) -> Iterator[str]:
    """Context manager: a recording of a storage as a local file, or as a folder of its segments.

    Raises:
        GputopError: It cannot be fetched.
    """
    filesystem, path = opened(url)
    with TemporaryDirectory(prefix="gputop-fleet-") as folder, storage_errors(url, "read"):
        place = os.path.join(folder, "session")
        if segments:
            os.mkdir(place)
        for one in segments or (path,):
            name = one.rpartition("/")[2]
            filesystem.get_file(one, os.path.join(place, name) if segments else place)
        yield place
