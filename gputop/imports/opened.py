"""Streams of trace files, packed or not, protected against decompression bombs."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from gputop.errors import install_command
from gputop.imports.gathered import ImportFileError
from replay.folders import opened

GZIP, ZSTD, ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
PIECE: Final = 1 << 20
_RATIO: Final = 200  # largest compression factor
_FREE: Final = 1 << 20


@contextmanager
def unpacked(path: str) -> Iterator[Iterator[bytes]]:
    """Context manager: the content of a file in pieces; of a .zip its only member.

    Raises:
        ImportFileError: It cannot be unpacked.
    """
    try:
        with os.fdopen(opened(path), "rb") as file:
            yield _watched(path, _pieces(path, file), os.fstat(file.fileno()).st_size)
    except (OSError, EOFError, MemoryError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        raise ImportFileError(f"{path} cannot be unpacked: {error}") from error


def head_of(path: str) -> bytes:
    with unpacked(path) as pieces:
        return next(pieces, b"")[:4096]


def is_packed(head: bytes) -> bool:
    """True if a file with this head has to be unpacked."""
    return head.startswith((GZIP, ZSTD, ZIP))


def _pieces(path: str, file: IO[bytes]) -> Iterator[bytes]:
    head = file.read(4)
    file.seek(0)
    if head.startswith(GZIP):
        with gzip.GzipFile(fileobj=file) as content:
            while piece := content.read(PIECE):
                yield piece
    elif head.startswith(ZSTD):
        yield from _zstd(path, file)
    elif head.startswith(ZIP):
        with zipfile.ZipFile(file) as archive, archive.open(_member(path, archive)) as member:
            while piece := member.read(PIECE):
                yield piece
    else:
        while piece := file.read(PIECE):
            yield piece


def _watched(path: str, pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The pieces, unless they are more than a file of this size can hold."""
    left = _RATIO * size + _FREE
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise ImportFileError(
                f"{path} unpacks to far more than a trace of its size holds: a decompression bomb?"
            )
        yield piece


def _zstd(path: str, file: IO[bytes]) -> Iterator[bytes]:
    unpacker = _zstd_reader(path, file)
    try:
        while piece := unpacker.read(PIECE):
            yield piece
    except Exception as error:  # each of the two libraries has its own exceptions
        raise EOFError(str(error)) from error


def _zstd_reader(path: str, file: IO[bytes]) -> Any:
    """Python's own since 3.14, else the package."""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]

        return zstd.ZstdFile(file)
    except ImportError:
        pass
    try:
        import zstandard  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ImportFileError(
            f"{path} is packed with zstd, for which a package is missing. Install it with: "
            f"{install_command('exchange')}. Or unpack the file first: zstd -d {path}"
        ) from None
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(file, read_across_frames=True)


def _member(path: str, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    rows = [
        row for row in archive.infolist() if not row.is_dir() and not row.filename.startswith("__MACOSX/")
    ]
    if len(rows) != 1:
        raise ImportFileError(
            f"{path} holds {len(rows)} files and not one trace: unpack it, and import its traces one by one, "
            "or their folder where they are the ranks of one job"
        )
    if rows[0].flag_bits & 1:
        raise ImportFileError(f"{path} is encrypted: unpack it first")
    return rows[0]
