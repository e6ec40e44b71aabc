"""Streams the events of a Chrome trace, which may be larger than memory.

``{"schemaVersion": 1, …, "traceEvents": [{…}, {…}, …], …}``, or only the list. Other content is kept whole.
The list is parsed in pieces that end where an event seems to end; a piece that does not parse (wrong guess,
or invalid JSON: Kineto does not escape names) is parsed event by event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from gputop.api.foreign_files import named
from gputop.imports.gathered import ImportFileError

_PIECE: Final = 1 << 20
_MOST_BESIDE: Final = 64 << 20  # bytes beside the events
_LONGEST: Final = 16 << 20  # bytes of an event
_EVENTS: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN: Final = re.compile(rb"\}\s*,\s*\{")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_SKIPPED: Final = " \t\r\n,"


class JsonEvents:
    """Reads such a trace once."""

    def __init__(self, path: str, pieces: Iterator[bytes]) -> None:
        """Read up to the first event.

        Raises:
            ImportFileError: There are no events.
        """
        self.beside: dict[str, Any] = {}  # content beside the events; complete after them
        self.controls = 0  # number of control characters in names, which were replaced by spaces
        self._path, self._pieces = path, pieces
        self._data = b""
        self._head: bytes | None = None  # none for a list alone
        self._over = False
        self._decoder = json.JSONDecoder(strict=False)
        self._open()

    def _more(self, size: int = _PIECE) -> bool:
        """Read on; False at the end."""
        parts, got = [self._data], 0
        while got < size:
            piece = next(self._pieces, None)
            if piece is None:
                self._over = True
                break
            parts.append(piece)
            got += len(piece)
        self._data = b"".join(parts)
        return got > 0

    def _open(self) -> None:
        self._more()
        start = self._data.lstrip(b"\xef\xbb\xbf \t\r\n")
        if start.startswith(b"["):
            self._data = start[1:]
            return
        while (found := _EVENTS.search(self._data)) is None:
            if len(self._data) > _MOST_BESIDE or not self._more(len(self._data) + 1):
                keys = named("key", list(self._parsed(self._data)))
                raise ImportFileError(
                    f"{self._path} is JSON with {keys}, and no Chrome trace: it has no list traceEvents"
                )
        self._head = self._data[: found.end()]
        self._data = self._data[found.end() :]

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield lists of events.

        Raises:
            ImportFileError: It is truncated, or no JSON.
        """
        while not self._over:
            self._more()
            if self._over:
                break
            # places where an event seems to end
            ends = [
                found.start() + 1 for found in _BETWEEN.finditer(self._data, max(len(self._data) - 65536, 0))
            ]
            for end in (*ends[-1:], *ends[:1]):
                events = self._piece(self._data[:end])
                if events is not None:
                    self._data = self._data[end:].lstrip()[1:]
                    yield events
                    break
            else:
                yield from self._one_by_one()
                if len(self._data) > _LONGEST:
                    raise self._broken("one event is larger than 16 MB")
                if self._over:
                    return
        yield from self._one_by_one()

    def _piece(self, data: bytes) -> list[Any] | None:
        try:
            events = json.loads(b"[" + data + b"]")
        except (ValueError, RecursionError):
            return None
        return events if isinstance(events, list) else None

    def _one_by_one(self) -> Iterator[list[Any]]:
        """Parse intact events; at the end of the list, also the content behind it."""
        whole = len(self._data) if self._over else self._data.rfind(b"}") + 1  # never within a character
        text, later = self._cleaned(self._data[:whole]), self._data[whole:]
        events: list[Any] = []
        place = 0
        while True:
            while place < len(text) and text[place] in _SKIPPED:
                place += 1
            if text.startswith("]", place):
                yield events
                self._close(text[place:].encode() + later)
                return
            try:
                event, place = self._decoder.raw_decode(text, place)
            except (ValueError, RecursionError) as error:
                if self._over:
                    raise self._broken(error) from error
                break
            events.append(event)
        yield events
        self._data = text[place:].encode() + later

    def _close(self, rest: bytes) -> None:
        parts = [rest]
        size = 0
        while (piece := next(self._pieces, None)) is not None:
            size += len(piece)
            if size > _MOST_BESIDE:
                raise self._broken("more than 64 MB beside the events")
            parts.append(piece)
        self._over, self._data = True, b""
        if self._head is not None:
            self.beside = self._parsed(self._head + b"".join(parts))
            self.beside.pop("traceEvents", None)

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            document = json.loads(self._cleaned(data), strict=False)
        except (ValueError, RecursionError, MemoryError) as error:
            raise self._broken(error) from error
        return document if isinstance(document, dict) else {}

    def _broken(self, why: object) -> ImportFileError:
        return ImportFileError(f"{self._path} is no valid JSON: {why}; was its writing interrupted?")

    def _cleaned(self, data: bytes) -> str:
        """Decode, with control characters and backslashes of names made valid JSON."""
        clean, controls = _CONTROL.subn(b" ", data)
        self.controls += controls
        text = clean.decode("utf-8", "replace")
        if "\\" in text:
            text = _ESCAPE.sub(lambda found: found[0] if len(found[0]) > 1 else r"\\", text)
        return text
