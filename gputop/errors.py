"""Errors with one sentence for the user: of the public API, of commands, of missing packages."""

from __future__ import annotations

import re
import shlex
import sys


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra of pyproject.toml.

    It names the packages, not gputop's extra: gputop comes from a checkout, and a package of that name in an
    index may be another program.
    """
    # of no other use to a command, whose start it would delay
    from importlib.metadata import PackageNotFoundError, requires

    try:
        wanted = requires("gputop") or []
    except PackageNotFoundError:
        wanted = []
    found = [re.split(r"\s*;", row)[0] for row in wanted if re.search(rf"extra == ['\"]{extra}['\"]", row)]
    words = [sys.executable, "-m", "pip", "install", *found]
    return " ".join(map(shlex.quote, words))


USAGE, FAILURE = 2, 1  # exit statuses


class GputopError(Exception):
    """gputop cannot do what was requested; the text has the reason and the next step.

    Attributes:
        status: The exit status of a command that ends with it.
    """

    status = FAILURE


class SessionNotFoundError(GputopError):
    """There is no such file."""


class SessionUnreadableError(GputopError):
    """The file exists, but cannot be read or is not a regular file."""


class SessionDamagedError(GputopError):
    """The file is not a session, or holds no intact part."""


class AccountingError(ValueError):
    """The parts do not add up to the whole: a defect of gputop, or inconsistent times in a file."""


def explanation_stopped(error: Exception) -> str:
    """Return why there is no explanation, with the next step."""
    if isinstance(error, AccountingError):
        return (
            f"the explanation stopped: times contradict each other ({error}); was a file edited, or did a "
            "clock jump? If not, please report it with the recording. The other tabs keep working"
        )
    return f"the explanation stopped: {type(error).__name__}: {error}"


class SessionTooNewError(GputopError):
    """A newer gputop recorded the file, in a format that this one does not know."""


class SessionClosedError(GputopError):
    """The session is closed."""


class NoCallsError(GputopError):
    """The file was recorded without eBPF: it holds no CUDA calls to explain."""


class OutsideSessionError(GputopError):
    """The time or time range lies outside the recording."""

    status = USAGE


class CommandError(GputopError):
    """An error that ends a command; ``status`` is 2 for wrong usage, else 1."""

    def __init__(self, message: str, status: int = FAILURE) -> None:
        super().__init__(message)
        self.status = status


class OutputError(CommandError):
    """Standard output cannot be written."""
