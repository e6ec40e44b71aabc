"""Which line of the program a call comes from: the stacks of a recording, and the frame to name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from probes.source_files import is_library

_MOST_STACKS = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """A line of source: file, number (0 when it is not known) and the function it is in."""

    file: str
    line: int
    function: str

    def text(self) -> str:
        """As a person reads it: ``train.py:42 in mask()``."""
        return f"{self.place} in {self.function}()"

    @property
    def place(self) -> str:
        """File and number: ``train.py:42``; ``train.py:?`` of a function that is too long for its table."""
        return f"{self.file.rpartition('/')[2]}:{self.line or '?'}"

    def to_json(self) -> dict[str, Any]:
        """As in docs/json.md."""
        return {"file": self.file, "line": self.line, "function": self.function}


def line_json(line: Line | None) -> dict[str, Any] | None:
    """The same of a line that may be unknown."""
    return line.to_json() if line is not None else None


class Stacks:
    """The stacks that samples told, by the number that calls carry."""

    def __init__(self) -> None:
        self._frames: dict[int, tuple[Line, ...]] = {}
        self._known: dict[Line, Line] = {}  # one object for each line, however many stacks hold it

    def take(self, data: dict[str, Any]) -> None:
        """Takes the data of a sample ``frames`` in."""
        for stack, frames in zip(data.get("stack", ()), data.get("frames", ()), strict=False):
            if len(self._frames) >= _MOST_STACKS:
                return
            self._frames[int(stack)] = tuple(self._line(frame) for frame in frames)

    def _line(self, frame: Iterable[Any]) -> Line:
        file, line, function = frame
        found = Line(str(file), int(line), str(function))
        return self._known.setdefault(found, found)

    def frames(self, stack: int) -> tuple[Line, ...]:
        """The frames of a stack from the innermost on; none when it is not known."""
        return self._frames.get(stack, ())

    def line(self, stack: int) -> Line | None:
        """The innermost line that is no library's, else the innermost one."""
        frames = self.frames(stack)
        for frame in frames:
            if not is_library(frame.file):
                return frame
        return frames[0] if frames else None
