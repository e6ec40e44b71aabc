"""gputop's command line and screen, and its Python library (docs/library.md).

``from gputop import open_session, explain, stats, diff``: each name is imported at its first use.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Report as Report
    from gputop.analysis.compare import Diff as Diff
    from gputop.api.functions import diff as diff
    from gputop.api.functions import explain as explain
    from gputop.api.functions import schema as schema
    from gputop.api.functions import stats as stats
    from gputop.api.functions import to_json as to_json
    from gputop.api.session import Session as Session
    from gputop.api.session import open_session as open_session
    from gputop.engine.frame import Frame as Frame
    from gputop.engine.session_totals import Stats as Stats
    from gputop.errors import GputopError as GputopError
    from gputop.errors import NoCallsError as NoCallsError
    from gputop.errors import OutsideSessionError as OutsideSessionError
    from gputop.errors import SessionClosedError as SessionClosedError
    from gputop.errors import SessionDamagedError as SessionDamagedError
    from gputop.errors import SessionNotFoundError as SessionNotFoundError
    from gputop.errors import SessionTooNewError as SessionTooNewError
    from gputop.errors import SessionUnreadableError as SessionUnreadableError

# else logging prints unrequested lines to standard error
logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES = {
    "gputop.api.session": ("open_session", "Session"),
    "gputop.api.functions": ("explain", "stats", "diff", "to_json", "schema"),
    "gputop.analysis.answer.report": ("Report",),
    "gputop.analysis.compare": ("Diff",),
    "gputop.engine.session_totals": ("Stats",),
    "gputop.engine.frame": ("Frame",),
    "gputop.errors": (
        "GputopError",
        "NoCallsError",
        "OutsideSessionError",
        "SessionClosedError",
        "SessionDamagedError",
        "SessionNotFoundError",
        "SessionTooNewError",
        "SessionUnreadableError",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return all names, including those not yet imported."""
    return sorted({*globals(), *_HOME})
