"""gputop's log, on request: to standard error (-v) or a file (GPUTOP_LOG).

Each module has a logger of its own name. Without a request the level is above every message, so a call costs
a comparison.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from gputop.errors import USAGE, CommandError, GputopError
from gputop.process.stdio import print_message

VARIABLE = "GPUTOP_LOG"
_LOGGERS = tuple(map(logging.getLogger, ("gputop", "replay", "probes")))
_OFF = logging.CRITICAL + 1
_LOG = logging.getLogger(__name__)


class _Harmless(logging.Formatter):
    """Escapes names in log lines, which may hold control sequences of other users."""

    def format(self, record: logging.LogRecord) -> str:
        from gputop.format import escape_text

        return "\n".join(map(escape_text, super().format(record).split("\n")))


class _Handler(logging.StreamHandler[TextIO]):
    """Reports the first line that cannot be written, and stops."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (its name in logging)
        """Replace logging's traceback by a message."""
        self.setLevel(_OFF)
        print_message(f"the log cannot be written, and ends here: {sys.exc_info()[1]}")


@contextmanager
def diagnosing(verbosity: int, *, screen: bool) -> Iterator[None]:
    """Context manager: log to where -v and GPUTOP_LOG ask for.

    Args:
        verbosity: Number of -v flags: 1 for information, 2 for debugging.
        screen: The screen occupies the terminal, so only a file can be logged to.

    Raises:
        CommandError: There is no place for it.
    """
    path = os.environ.get(VARIABLE)
    if verbosity and screen and not path:
        raise CommandError(
            f"-v would write over the screen: log to a file with {VARIABLE}=FILE, or use --once", USAGE
        )
    handlers: list[logging.Handler] = []
    if path:
        handlers.append(_Handler(_opened(path)))
    if verbosity and not screen:
        handlers.append(_Handler(sys.stderr))
    level = (logging.DEBUG if verbosity > 1 else logging.INFO) if handlers else _OFF
    for handler in handlers:
        handler.setFormatter(_Harmless("%(asctime)s %(levelname)s %(name)s [%(threadName)s] %(message)s"))
    for logger in _LOGGERS:
        logger.setLevel(level)
        for handler in handlers:
            logger.addHandler(handler)
    _LOG.info("Python %s, %s %s", platform.python_version(), platform.system(), platform.release())
    try:
        yield
    except GputopError:
        _LOG.debug("ended", exc_info=True)
        raise
    except Exception:
        _LOG.exception("ended")
        raise
    finally:
        for logger in _LOGGERS:
            for handler in handlers:
                logger.removeHandler(handler)
            logger.setLevel(_OFF)


def _opened(path: str) -> TextIO:
    from gputop.process.child import behind_sudo
    from replay.ownership import open_for_appending

    user = behind_sudo()
    try:
        descriptor = open_for_appending(path, (user.uid, user.gid) if user else None)
    except OSError as error:
        raise CommandError(
            f"{VARIABLE}={path} cannot be written ({error.strerror}): name a new file, or one of yours, "
            "in a folder that you may write to"
        ) from error
    return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")
