"""Limits for one pass over a file, by its size: a file far beyond them was made to fill memory.

A training job's records need five bytes each, and its samples hardly shrink; both may be a dozen times
smaller here. A file that consists of repetitions can hold a thousand times as much in the same room.
"""

from __future__ import annotations

from typing import Final

_FREE_RECORDS: Final = 1 << 18  # however small the file is
_RECORDS_PER_BYTE: Final = 2
_FREE_BYTES: Final = 8 << 20  # of samples, unpacked; likewise
_BYTES_PER_BYTE: Final = 32


class Allowance:
    """The rest of the limits, of a pass over a file."""

    def __init__(self, size: int) -> None:
        self._records = _FREE_RECORDS + _RECORDS_PER_BYTE * size
        self._bytes = _FREE_BYTES + _BYTES_PER_BYTE * size

    def consume_records(self, count: int) -> None:
        """So many records come.

        Raises:
            ValueError: they are more than is left.
        """
        if count > self._records:
            raise ValueError("more records than a file of this size can hold")
        self._records -= count

    def consume_bytes(self, count: int) -> None:
        """Counts a sample of so many bytes unpacked.

        Raises:
            ValueError: they are more than is left.
        """
        if count > self._bytes:
            raise ValueError("larger samples than a file of this size can hold")
        self._bytes -= count


class Outlay:
    """The written amount, and in how many bytes: so that a reader allows all of it."""

    def __init__(self) -> None:
        self._records = self._unpacked = self._bytes = 0

    def allows(self, size: int, *, records: int = 0, unpacked: int = 0) -> bool:
        """True if so many records, or bytes of a sample, may be reported in ``size`` bytes more."""
        written = self._bytes + size
        return (
            self._records + records <= _FREE_RECORDS + _RECORDS_PER_BYTE * written
            and self._unpacked + unpacked <= _FREE_BYTES + _BYTES_PER_BYTE * written
        )

    def add(self, size: int, *, records: int = 0, unpacked: int = 0) -> None:
        """These were written."""
        self._records += records
        self._unpacked += unpacked
        self._bytes += size
