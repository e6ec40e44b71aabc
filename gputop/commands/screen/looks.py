"""The screen's look: flags override preferences, preferences override the terminal's defaults."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from gputop.commands.flags import filter_text, shown_gpus
from gputop.process.terminal import prefers_ascii
from gputop.ui.model.config import Preferences, Startup, config_path, load
from gputop.ui.model.listing.process_table import process_table
from gputop.ui.model.process import line_table
from gputop.ui.model.process.call_table import CALL_COLUMNS, THREAD_COLUMNS
from gputop.ui.model.table import Column
from gputop.ui.model.view import TOGGLED

RATE_HZ = 4.0


def preferences() -> Preferences:
    path = config_path()
    return load(path, known_columns(), TOGGLED) if path else Preferences()


def known_columns() -> dict[str, tuple[str, ...]]:
    """Return the keys of each table's columns."""
    return {
        "processes": _keys(process_table().columns),
        "calls": _keys(CALL_COLUMNS),
        "threads": _keys(THREAD_COLUMNS),
        "lines": _keys(line_table.COLUMNS),
    }


def _keys(columns: Sequence[Column[Any]]) -> tuple[str, ...]:
    return tuple(column.key for column in columns)


def startup_of(options: argparse.Namespace, preferred: Preferences, title: str, **more: Any) -> Startup:
    """Return the screen's startup of flags, preferences and ``more`` fields of ``Startup``."""
    return Startup(
        ascii=draws_ascii(options, preferred),
        title=title,
        preferences=preferred,
        alerts=(*preferred.alerts, *options.alerts),
        filter=filter_text(options),
        gpus=shown_gpus(options),
        **more,
    )


def draws_ascii(options: argparse.Namespace, preferred: Preferences | None = None) -> bool:
    if options.ascii or prefers_ascii():
        return True
    return preferred is not None and preferred.glyphs == "ascii"
