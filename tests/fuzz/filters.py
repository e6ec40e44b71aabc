"""What is typed as a filter of the processes, and run over the names and command lines of others."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from gputop.engine.frame import ProcessRow
from gputop.ui.model.listing.filter import FilterError, parse_filter
from tests import fake_frames
from tests.fuzz import mutation
from tests.fuzz.target import Target

_SEEDS = (
    "train",
    "!rank [0-3]$",
    "gpu:0,1 user:alice",
    "call:Memcpy,Launch state:blocked",
    "pid:4242 name:py",
    "!^python3?\\.(1[01])|x{2,3}",
    "command:epochs state:storm,exited",
    "!(a|b)*c",
    "!(?i)PY(?=thon)",
)
_PIECES = (
    "(",
    ")",
    "[",
    "]",
    "*",
    "+",
    "?",
    "{2}",
    "{,99999}",
    "|",
    "\\",
    "\\d",
    ".*",
    "(?:a",
    "(?P<x>",
    "(?<=",
    ":",
    ",",
    "!",
    "gpu:",
    "user:",
    "state:",
    "pid:",
    "٣",
    "²",
    "9" * 30,
    "\0",
    "\udcff",
    "(a+)+$",
    "(.*)*x",
    "\\1",
    "(?u)",
    "(" * 200,
    "{4294967296}",
    "(?#",
    "[^",
    "\\x",
    "é",
    "İ",
    "(a|a)*$",
    "(?:x+x+)+y",
)


def _seeds() -> list[bytes]:
    return [text.encode() for text in _SEEDS]


def _mutate(data: bytes, random: Random) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(text) + 1)
        match random.randrange(5):
            case 0:
                text = mutation.text(text, random)
            case 1:
                text = text[:at] + text[at + 1 :]
            case 2:
                text = "!" + text
            case _:
                text = text[:at] + random.choice(_PIECES) + text[at:]
    return text[:500].encode("utf-8", "surrogateescape" if random.random() < 0.9 else "replace")


@cache
def _rows() -> tuple[ProcessRow, ...]:
    rows = fake_frames.frame(processes=4).processes
    odd = ("python " + "a" * 2000 + "!", "x" * 4000, "\udcff\0\n", "", "1 " * 900)
    return (*rows, *(replace(rows[0], command=command, name=command[:15]) for command in odd))


def _run(data: bytes, _folder: Path) -> None:
    try:
        typed = parse_filter(data.decode("utf-8", "surrogateescape"))
    except FilterError:
        return
    for row in _rows():
        typed.passes(row, {row.pid})


TARGET = Target(_seeds, _mutate, _run)
