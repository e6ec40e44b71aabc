"""Text and figures as HTML: texts of recordings are escaped here and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Iterable

from gputop.format import clip, escape_text

_LONGEST = 200  # characters of one name: a page is read by people


def text(value: object) -> str:
    """Return any text, escaped: control signs and markup are shown as such."""
    return html.escape(clip(escape_text(str(value)), _LONGEST))


def sentence(value: str) -> str:
    """Return a sentence of gputop's, escaped and whole."""
    return html.escape(escape_text(value))


def figure(key: str, value: int | float | None, shown: str) -> str:
    """Return a figure with its exact value.

    Args:
        key: Its place in ``gputop explain --json``, as ``findings.0.loss_ns.lower``; ``""`` for none.
        value: As there.
        shown: As text.
    """
    exact = "null" if value is None else str(value)
    named = f' data-key="{html.escape(key)}"' if key else ""
    return f'<data value="{exact}"{named}>{html.escape(shown)}</data>'


def items(sentences: Iterable[str], kind: str) -> str:
    """Return sentences as a list; "" without any."""
    rows = "".join(f"<li>{sentence(one)}</li>" for one in sentences)
    return f'<ul class="{kind}">{rows}</ul>' if rows else ""


def table(name: str, heads: Iterable[str], rows: Iterable[Iterable[str]], more: str = "") -> str:
    """Return a table that sorts.

    Args:
        name: Its caption.
        heads: Of its columns; those that begin with ``#`` hold figures.
        rows: Cells, as HTML.
        more: A note on rows that are left out.
    """
    columns = list(heads)
    figures = [head.startswith("#") for head in columns]
    top = "".join(
        f'<th scope="col"{_number(is_figure)}><button type="button">'
        f"{html.escape(head.lstrip('#'))}</button></th>"
        for head, is_figure in zip(columns, figures, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_number(is_figure)}>{cell}</td>" for cell, is_figure in zip(row, figures, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    note = f'<p class="note">{sentence(more)}</p>' if more else ""
    return (
        f'<div class="scroll"><table class="sorts"><caption>{html.escape(name)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _number(is_figure: bool) -> str:
    return ' class="n"' if is_figure else ""
