"""``gputop fleet screen``: a lake in the terminal, and its sessions in their own screens."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import subprocess
from typing import TYPE_CHECKING

from gputop.commands.screen.looks import preferences
from gputop.errors import FAILURE
from gputop.fleet.browse import Lake, Late, late_ranks
from gputop.fleet.lake.lake import open_lake
from gputop.fleet.lake.pieces import LakeSelection
from gputop.fleet.lake.urls import called
from gputop.fleet.ranks.stragglers import TABLES, stragglers
from gputop.process.isolation import isolated
from gputop.process.terminal import require_terminal
from gputop.query.forked import bound_memory

if TYPE_CHECKING:
    from gputop.fleet.lake_app import Lent

_LOG = logging.getLogger(__name__)
_MOST_LATE = 10_000


def screen(options: argparse.Namespace, part: LakeSelection) -> int:
    """Run the screen over a part of a lake; return the exit status."""
    require_terminal()
    gc.enable()  # off in commands with a screen
    if options.own_process:
        bound_memory()
    from gputop.fleet.lake_app import LakeScreen, Ways
    from gputop.ui.terminal.palette import PALETTES, color_system_of, palette_for
    from gputop.ui.terminal.terminal_guard import TerminalGuard

    database = open_lake(options.lake, TABLES, part)
    lake = Lake(database, options.timeout)

    def late() -> list[Late]:
        return late_ranks(stragglers(database, options.timeout, rest=False, limit=_MOST_LATE).answer)

    colours = palette_for(
        preferences().theme, no_color="NO_COLOR" in os.environ, color_system=color_system_of(os.environ)
    )
    app = LakeScreen(
        lake,
        called(options.lake),
        Ways(_open, late),
        [one.theme() for one in PALETTES.values()],
        colours.name,
    )
    with TerminalGuard():
        status = app.run()
    # the database stays open: the search for late ranks may still use it
    return FAILURE if app.return_code else status or 0


def _open(path: str, lent: Lent) -> str:
    """Show a recording by ``gputop replay``; return an error, "" for none."""
    with lent():
        status = subprocess.run(isolated("gputop", "replay", os.path.abspath(path)), check=False).returncode
    _LOG.info("the screen over %s ended with status %d", path, status)
    return f"gputop replay {path} ended with status {status}: the reason is in the terminal" if status else ""
