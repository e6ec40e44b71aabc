"""gputop's own log, on request: to standard error (-v), to a file (GPUTOP_LOG).

Each module has its logger, by its name. Without either their levels are above all that is logged, so that a
call costs a comparison.
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
    """Lines that a terminal may show: names in them are other people's data."""

    def format(self, record: logging.LogRecord) -> str:
        from gputop.format import escape_text

        return "\n".join(map(escape_text, super().format(record).split("\n")))


class _Handler(logging.StreamHandler[TextIO]):
    """Ends with the first line that cannot be written, and says so."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (its name in logging)
        """Called by logging, which would print a traceback."""
        self.setLevel(_OFF)
        print_message(f"the log cannot be written, and ends here: {sys.exc_info()[1]}")


@contextmanager
def diagnosing(verbosity: int, *, screen: bool) -> Iterator[None]:
    """Meanwhile gputop's loggers write where they are asked to.

    Args:
        verbosity: How often -v was typed: once for what happens, twice for more of it.
        screen: The terminal is the screen's, so only a file can take the log.

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
