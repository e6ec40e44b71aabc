"""What became of the mutants: kept a line each, counted, and written as a page."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from textwrap import wrap
from typing import Any

from tests.mutants.mutant import Mutant

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_AROUND = 16  # columns of a line that are shown beside what differs in it
EXPLAINED = Path(__file__).resolve().parent / "explained.toml"
_INTRO = """# Mutation testing

`make mutants` changes the code in small wrong ways (cosmic-ray's: another comparison, another number, `and`
for `or`, a loop that does not run) and runs the tests that are to notice. What no test notices is the same
program, or something that no test holds. Tried are the files that proofs, accounting, readers and bounds are
made of: {sample} changes a file, drawn by a seed, each at another place. This page is made from the outcome
by `tests/mutants/report.py`.

"""


class Results:
    """The outcomes of all runs, in a file with a line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[tuple[str, str, str], dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            self._rows[row["path"], row["was"], row["becomes"]] = row
        self._why = {
            (path, change): why
            for path, changes in tomllib.loads(EXPLAINED.read_text()).items()
            for change, why in changes.items()
        }

    def forget(self, name: str, but: Iterable[Mutant]) -> None:
        """Drops what is known of a file's mutants but for these."""
        kept = {mutant.key for mutant in but}
        self._rows = {key: row for key, row in self._rows.items() if key[0] != name or key in kept}

    def put(self, mutant: Mutant, outcome: str) -> None:
        """Takes in what became of a mutant, and keeps it."""
        row = {"path": mutant.path, "line": mutant.line, "was": mutant.was, "becomes": mutant.becomes}
        self._rows[mutant.key] = row | {"operator": mutant.operator, "outcome": outcome}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("".join(json.dumps(one) + "\n" for one in self._rows.values()))

    def outcome(self, mutant: Mutant) -> str | None:
        """What became of it when it was tried; None: it was not."""
        row = self._rows.get(mutant.key)
        return None if row is None else str(row["outcome"])

    def counts(self, name: str) -> Counter[str]:
        """Of a file: killed, endless, explained, survived (and not explained)."""
        return Counter(self._outcome(row) for row in self._rows.values() if row["path"] == name)

    def line(self, name: str) -> str:
        """The counts as text."""
        counts = self.counts(name)
        return f"{name}: " + ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts))

    def open(self) -> list[dict[str, Any]]:
        """The survivors that nobody has explained."""
        return [row for row in self._rows.values() if self._outcome(row) == "survived"]

    def page(self, names: Iterable[str]) -> str:
        """docs/mutation.md, of the files that were tried."""
        names = [name for name in names if self.counts(name)]
        sample = max(sum(self.counts(name).values()) for name in names)
        return (
            _INTRO.format(sample=sample) + "\n".join([*self._table(names), "", *self._reasons(names)]) + "\n"
        )

    def _outcome(self, row: dict[str, Any]) -> str:
        known = row["outcome"] == "survived" and _place(row) in self._why
        return "explained" if known else str(row["outcome"])

    def _table(self, names: Iterable[str]) -> Iterator[str]:
        yield "| file | tried | noticed by a test | never ended | explained below | open |"
        yield "|---|---|---|---|---|---|"
        total: Counter[str] = Counter()
        for name in names:
            counts = self.counts(name)
            total += counts
            yield _row(f"`{name}`", counts)
        yield _row("all", total)

    def _reasons(self, names: Iterable[str]) -> Iterator[str]:
        yield "## What survives"
        for name in names:
            rows = [row for row in self._rows.values() if row["path"] == name]
            rows = [row for row in rows if self._outcome(row) in ("explained", "survived")]
            if rows:
                yield from ("", f"`{name}`", "")
            for row in rows:
                why = self._why.get(_place(row), "open: no test notices, and nobody says why that is right")
                change = (f"`{part}`" for part in _changed(row["was"], row["becomes"]))
                yield from _wrapped(f"- {' → '.join(change)}: {why}")


def _place(row: dict[str, Any]) -> tuple[str, str]:
    """(file, change) as explained.toml has it."""
    return row["path"], f"{row['was']} -> {row['becomes']}"


def _row(name: str, counts: Counter[str]) -> str:
    kinds = ("killed", "endless", "explained", "survived")
    cells = [str(counts.total()), *(str(counts[kind]) for kind in kinds)]
    return f"| {name} | {' | '.join(cells)} |"


def _changed(was: str, becomes: str) -> tuple[str, str]:
    """What differs, with a little around it."""
    same = _alike(was, becomes)
    after = _alike(was[same:][::-1], becomes[same:][::-1])
    begin = max(same - _AROUND, 0)
    first, second = (text[begin : len(text) - after + _AROUND].strip() for text in (was, becomes))
    return first, second


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _wrapped(text: str) -> Iterator[str]:
    """Lines of at most 118 columns."""
    return iter(wrap(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
