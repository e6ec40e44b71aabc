"""Errors with one sentence for the user: of the public API, of commands, of missing packages."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra of pyproject.toml.

    The packages are named, not gputop's extra: gputop comes from a checkout, and what a package index has
    under its name may be somebody else's.
    """
    try:
        wanted = requires("gputop") or []
    except PackageNotFoundError:
        wanted = []
    found = [re.split(r"\s*;", row)[0] for row in wanted if re.search(rf"extra == ['\"]{extra}['\"]", row)]
    words = [sys.executable, "-m", "pip", "install", *found]
    return " ".join(map(shlex.quote, words))


# Errors with one sentence for the user: those of the library's face, and those that end a command.

USAGE, FAILURE = 2, 1


class GputopError(Exception):
    """gputop cannot do what was requested; the text says what happened, why, and what to do.

    Attributes:
        status: The exit status of a command that ends with it.
    """

    status = FAILURE


class SessionNotFoundError(GputopError):
    """There is no such file."""


class SessionUnreadableError(GputopError):
    """The file is there, but may not or cannot be read, or is no regular file."""


class SessionDamagedError(GputopError):
    """The file is no session, or holds nothing that is whole or can be understood."""


class AccountingError(ValueError):
    """The parts do not add up to the whole: a defect of gputop, or a file whose times were made up."""


def explanation_stopped(error: Exception) -> str:
    """One sentence: why there is no explanation, and what to do. All else goes on."""
    if isinstance(error, AccountingError):
        return (
            f"the explanation stopped: times contradict each other ({error}); was a file edited, or did a "
            "clock jump? The other tabs go on; if neither is so, please report it with the recording"
        )
    return f"the explanation stopped: {type(error).__name__}: {error}"


class SessionTooNewError(GputopError):
    """A newer gputop recorded the file, in a format that this one does not know."""


class SessionClosedError(GputopError):
    """The session was closed before."""


class NoCallsError(GputopError):
    """The file was recorded without eBPF: it holds no CUDA calls and no waits to explain."""


class OutsideSessionError(GputopError):
    """The moment or the stretch lies outside of the recording."""

    status = USAGE


class CommandError(GputopError):
    """The command cannot go on.

    Attributes:
        status: 2 for usage, 1 for everything else.
    """

    def __init__(self, message: str, status: int = FAILURE) -> None:
        super().__init__(message)
        self.status = status


class OutputError(CommandError):
    """Standard output takes no more of what the command has to show."""
