"""Texts that rows name by number: those of programs are bounded, and forgotten where they are too many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from probes.activities import TEXTS, Table

MOST_TEXTS: Final = 1 << 16
MOST_CHARACTERS: Final = 400  # of one, as of a demangled name
_MANY_CHARACTERS: Final = 4 << 20  # of all, before those that no row names are forgotten


class TextNumbers:
    """Numbers texts; 0 is the empty one, which every text becomes where there is no room until the next mark.

    Args:
        own: Texts of gputop's own, which always have a number.
    """

    def __init__(self, own: Iterable[str]) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._characters = 0
        for text in ("", *own):
            self.number(text)
        self._own = len(self.texts)

    def number(self, text: str) -> int:
        """The number of a text, of which the first characters count."""
        text = text[:MOST_CHARACTERS]
        known = self._numbers.get(text)
        if known is not None:
            return known
        if len(self.texts) >= MOST_TEXTS:
            return 0
        self._characters += len(text)
        self._numbers[text] = len(self.texts)
        self.texts.append(text)
        return self._numbers[text]

    def forget(self, waiting: Iterable[Table]) -> None:
        """Drops, after a mark, texts without rows where there are many; so one program leaves others room.

        Args:
            waiting: Rows that are not reported yet, whose numbers change with it.
        """
        if len(self.texts) < MOST_TEXTS // 2 and self._characters < _MANY_CHARACTERS:
            return
        tables = list(waiting)
        used = np.unique(
            np.concatenate([np.arange(self._own), *(table[name] for table in tables for name in TEXTS)])
        )
        for table in tables:
            for name in TEXTS:
                table[name] = np.searchsorted(used, table[name])
        self.texts = [self.texts[place] for place in used.tolist()]
        self._numbers = {text: place for place, text in enumerate(self.texts)}
        self._characters = sum(map(len, self.texts))


class HandedTexts:
    """The texts of each program's numbers, within bounds for one and for all together."""

    MOST_OF_ONE: Final = MOST_TEXTS
    MOST_OF_ALL: Final = 4 * MOST_TEXTS
    BYTES_OF_ONE: Final = 8 << 20
    BYTES_OF_ALL: Final = 32 << 20

    def __init__(self) -> None:
        self._texts: dict[int, dict[int, str]] = {}
        self._bytes: dict[int, int] = {}
        self._count = self._total = 0

    def consume(self, pid: int, number: int, text: bytes) -> None:
        """A program hands one over; beyond the bounds it has no name."""
        own = self._texts.setdefault(pid, {})
        size = self._bytes.get(pid, 0) + len(text)
        if len(own) >= self.MOST_OF_ONE or self._count >= self.MOST_OF_ALL:
            return
        if size > self.BYTES_OF_ONE or self._total + len(text) > self.BYTES_OF_ALL:
            return
        self._bytes[pid], self._total = size, self._total + len(text)
        self._count += number not in own
        own[number] = text.decode(errors="replace")

    def inherit(self, pid: int, parent: int | None) -> None:
        """Another program is under this number now, by fork with the texts of its parent."""
        inherited = self._texts.get(parent, {}) if parent is not None else {}
        inherited = dict(inherited) if self._count + len(inherited) <= self.MOST_OF_ALL else {}
        self.drop(pid)
        if inherited:
            self._texts[pid] = inherited
            self._count += len(inherited)

    def of(self, pid: int) -> dict[int, str]:
        """The texts of a program's numbers."""
        return self._texts.get(pid, {})

    def drop(self, pid: int) -> None:
        self._count -= len(self._texts.pop(pid, ()))
        self._total -= self._bytes.pop(pid, 0)
