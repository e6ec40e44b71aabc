"""A row as one line of text, for the clipboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputop.ui.model.look import Line, plain
from gputop.ui.model.table import Column, Context

UNLIMITED = 200  # the width that cells are asked for: a copied row is not cut


def row_text(columns: Sequence[Column[Any]], row: Any, context: Context) -> str:
    """All columns of a row, each with its heading, also those that are out of sight.

    Args:
        columns: The table's columns.
        row: The row.
        context: What the cells need.
    """
    parts = []
    for column in columns:
        text = column.cell(row, context, UNLIMITED)[0].strip()
        if text:
            parts.append(f"{column.title} {text}")
    return "  ".join(parts)


def page_text(lines: Sequence[Line]) -> str:
    """A page as text, without the blanks at the ends of its lines."""
    return "\n".join(plain(line).rstrip() for line in lines)
