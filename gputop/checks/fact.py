"""One line of ``gputop check``: what was found, whether that is enough, and what to type where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OK, MISSING, NOTE = "ok", "missing", "note"


@dataclass(frozen=True, slots=True)
class Fact:
    """Something found, or not.

    Attributes:
        status: ``ok``, ``missing`` (something does not work without it) or ``note``.
        text: What was found, as a part of a sentence.
        fix: What to type or to change; given with every ``missing``.
        blocks: Whether live tracing is impossible because of it.
    """

    status: str
    text: str
    fix: str = ""
    blocks: bool = False


def ok(text: str) -> Fact:
    """Something that is as it should be."""
    return Fact(OK, text)


def note(text: str, fix: str = "") -> Fact:
    """Something worth knowing that stops nothing."""
    return Fact(NOTE, text, fix)


def missing(text: str, fix: str, *, blocks: bool = True) -> Fact:
    """Something that is not there; ``blocks`` when live tracing needs it."""
    return Fact(MISSING, text, fix, blocks)


@dataclass(frozen=True, slots=True)
class Section:
    """A family of facts.

    Attributes:
        name: Its heading, and its key in the JSON.
        facts: Its lines.
        data: The same for programs: plain data.
        details: Lines that only ``-v`` shows.
    """

    name: str
    facts: tuple[Fact, ...]
    data: Any
    details: tuple[str, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether live tracing is impossible because of something in here."""
        return any(fact.blocks for fact in self.facts)
