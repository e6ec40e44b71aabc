"""A line of ``gputop check``: a fact, its status, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OK, MISSING, NOTE = "ok", "missing", "note"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of the machine."""

    status: str  # ``ok``, ``missing`` (something does not work without it) or ``note``
    text: str  # the fact, as a part of a sentence
    fix: str = ""  # command or change that helps; present with nearly every ``missing``
    blocks: bool = False  # whether live tracing is impossible because of it


def ok(text: str) -> Fact:
    """A requirement that is met."""
    return Fact(OK, text)


def note(text: str, fix: str = "") -> Fact:
    """A fact worth knowing that blocks nothing."""
    return Fact(NOTE, text, fix)


def missing(text: str, fix: str, *, blocks: bool = True) -> Fact:
    """An unmet requirement; ``blocks`` if live tracing needs it."""
    return Fact(MISSING, text, fix, blocks)


@dataclass(frozen=True, slots=True)
class Section:
    """A family of facts."""

    name: str  # its heading, and its key in the JSON
    facts: tuple[Fact, ...]  # its lines
    data: Any  # the same for programs: plain data
    details: tuple[str, ...] = ()  # lines that only ``-v`` shows

    @property
    def blocks(self) -> bool:
        """True if a fact in it makes live tracing impossible."""
        return any(fact.blocks for fact in self.facts)
