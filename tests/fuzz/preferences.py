"""Preferences files: TOML of any kind."""

from __future__ import annotations

from pathlib import Path
from random import Random

from gputop.commands.screen.looks import known_columns
from gputop.ui.model.config import load
from gputop.ui.model.view import TOGGLED
from tests.fuzz import mutation
from tests.fuzz.target import Target

_WHOLE = (
    'rate = 2\ntheme = "light"\nglyphs = "ascii"\ntree = true\nhide = ["threads", "storms"]\n'
    '[columns]\nprocesses = ["pid", "name", "voluntary"]\ncalls = ["api", "layer"]\n'
)
_VALUES = (
    "1e400",
    "-nan",
    "0x" + "f" * 5000,
    "9" * 5000,
    "1979-05-27T07:32:00Z",
    "[" * 3000,
    "{a = " * 2000,
    "'''x\ny'''",
    '"\\U0001F600"',
    '"\\ud800"',
    "[[1, [2]], {}]",
    "true",
    '""',
    "{}",
    "0b1",
    "inf",
    "1_000",
    '"\\u0000"',
    "07:32:00",
)
_KEYS = ("rate", "theme", "glyphs", "hide", "tree", "columns", "columns.processes", '"a\\nb"', "''", "x.y.z")


def _seeds() -> list[bytes]:
    return [
        _WHOLE.encode(),
        b"",
        b'[columns.processes]\nx = 1\n[[hide]]\n"a" = [{}]\n',
        b"\xef\xbb\xbfrate = 1",
    ]


def _mutate(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    match random.randrange(5):
        case 0:
            return mutation.some_bytes(data, random)[:66_000]
        case 1:
            lines[at] = lines[at].partition(b"=")[0] + b"= " + random.choice(_VALUES).encode()
        case 2:
            lines.insert(at, f"{random.choice(_KEYS)} = {random.choice(_VALUES)}".encode())
        case 3:
            lines[at] = mutation.some_bytes(lines[at], random)
        case _:
            name = random.choice(_KEYS)
            lines.insert(at, random.choice((f"[{name}]", f"[[{name}]]")).encode())
    return b"\n".join(lines)[:66_000]


def _run(data: bytes, folder: Path) -> None:
    path = folder / "config.toml"
    path.write_bytes(data)
    made = load(path, known_columns(), TOGGLED)
    if any(str(path) not in problem for problem in made.problems):
        raise AssertionError("a problem that does not name the file")
    if any(len(problem) > 1000 for problem in made.problems):
        raise AssertionError("a problem of more than 1000 characters")


TARGET = Target(_seeds, _mutate, _run)
