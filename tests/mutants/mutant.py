"""One small wrong change of the code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small change of one file.

    Attributes:
        path: The file, relative to the tree.
        operator: cosmic-ray's name of the kind of change.
        line: Number of the first line that differs, from 1.
        was: That line before, without its indentation.
        becomes: The line after.
        code: The whole file, changed.
    """

    path: str
    operator: str
    line: int
    was: str
    becomes: str
    code: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from others, also when lines above it come or go."""
        return self.path, self.was, self.becomes
