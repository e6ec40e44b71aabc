"""How the screen is to look: flags before preferences, preferences before what the terminal suggests."""

from __future__ import annotations

import argparse

from gputop.config import Preferences, config_path, load
from gputop.terminal import prefers_ascii
from gputop.ui.model.details import call_table, thread_table
from gputop.ui.model.hiding import TOGGLED
from gputop.ui.model.processes import process_table

RATE_HZ = 4.0


def preferences() -> Preferences:
    """The preferences of whoever runs this."""
    tables = {"processes": process_table(), "calls": call_table(), "threads": thread_table()}
    known = {
        name: tuple(column.key for column in table.columns if not column.unless)
        for name, table in tables.items()
    }
    return load(config_path(), known, TOGGLED)


def draws_ascii(options: argparse.Namespace, preferred: Preferences | None = None) -> bool:
    """Whether to draw with ASCII only.

    Args:
        options: The command line; ``--ascii`` counts most.
        preferred: The preferences, None for text that is no screen.
    """
    if options.ascii or prefers_ascii():
        return True
    return preferred is not None and preferred.glyphs == "ascii"
