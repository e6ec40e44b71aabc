"""Errors that end a command: one sentence for the user and an exit status."""

from __future__ import annotations

USAGE, FAILURE = 2, 1


class CommandError(Exception):
    """The command cannot go on.

    Attributes:
        status: 2 for usage, 1 for everything else.
    """

    def __init__(self, message: str, status: int = FAILURE) -> None:
        super().__init__(message)
        self.status = status


class OutputError(CommandError):
    """Standard output takes no more of what the command has to show."""
