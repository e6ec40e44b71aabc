"""What is said of an exception that no command has expected."""

from __future__ import annotations

import os
import sys

from gputop.errors import FAILURE
from gputop.say import say, say_where
from gputop.shortage import shortage


def unexpected(error: Exception) -> int:
    """Says it in a sentence, what has run out by its name; returns the exit status."""
    if os.environ.get("GPUTOP_TRACEBACK"):
        say_where(error)
        return FAILURE
    if lacking := shortage(error):
        say(lacking)
        return FAILURE
    ours = ("gputop", "probes", "replay")
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(ours):
        # started from a checkout by a Python that nobody set up
        say(
            f"{sys.executable} has no package {error.name}, which gputop needs: "
            "start it by `make run`, or `make install` it"
        )
        return FAILURE
    say(
        f"this should not have happened: {type(error).__name__}: {error} "
        "(GPUTOP_TRACEBACK=1 shows where; please report it)"
    )
    return FAILURE
