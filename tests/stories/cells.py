"""Rows and marks of the tables of stories, and their page, which has a part for each kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path


def row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def table(head: Sequence[str], rows: Iterable[str]) -> list[str]:
    """A table of such rows."""
    return [row(head), row(["---"] * len(head)), *rows, ""]


def mark(right: bool | None) -> str:
    """A cross beside what is wrong."""
    return "" if right or right is None else " ✗"


def count(held: Sequence[bool | None]) -> str:
    """``3 of 4``, of those that can be right or wrong."""
    known = [one for one in held if one is not None]
    return f"{sum(map(bool, known))} of {len(known)}"


def ms(ns: float | None) -> str:
    """Milliseconds, ``-`` where there are none."""
    return "-" if ns is None else f"{ns / 1e6:.0f}"


def percent(share: float | None) -> str:
    """The same for a share."""
    return "-" if share is None else f"{100 * share:.1f}"


def holds(summary: Iterable[tuple[str, str]]) -> bool:
    """Whether every requirement holds in all."""
    return all(held == of for held, of in (text.split(" of ") for _, text in summary))


def put(page: Path, part: str) -> None:
    """Writes a part, which begins with its title, in the place of that of before; the others stay."""
    title = part.partition("\n")[0]
    parts = re.split(r"(?m)^(?=# )", page.read_text()) if page.exists() else []
    kept = [part if one.startswith(f"{title}\n") else one for one in parts]
    if part not in kept:
        kept.append(part)
    page.write_text("\n".join(one.strip() + "\n" for one in kept if one.strip()))


def screen_cell(right: bool, text: str) -> str:
    """Whether the screen is right, or what it shows instead."""
    return "right" if right else f"✗ `{' '.join(text.split())}`"
