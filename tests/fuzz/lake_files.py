"""Lakes that somebody else wrote: lists and tables of any content."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any, cast

from gputop.errors import GputopError
from gputop.fleet.lake.lake import add_piece, adding_to, known_in, open_lake
from gputop.fleet.lake.lake_tables import COLUMNS
from gputop.fleet.lake.pieces import LISTS
from replay.coding import file_format as fmt
from tests import made_lake
from tests.fuzz import mutation
from tests.fuzz.target import Target

_MOST_ROWS, _SECONDS = 1000, 4
_LISTS = (
    '{"version": 3, "keys": {}, "known": [], "versions": []}',
    "[" * 3000,
    '{"version": Infinity}',
    "null",
)


def _seeds() -> list[bytes]:
    """Each a map of its files."""
    mutation.one_arena()
    found = []
    for many in (1, 6):
        with tempfile.TemporaryDirectory() as name:
            lake = Path(name, "lake")
            with adding_to(str(lake)):
                add_piece(str(lake), made_lake.sessions(many))
                add_piece(str(lake), {})
            files = {
                str(path.relative_to(lake)): path.read_bytes() for path in lake.rglob("*") if path.is_file()
            }
            found.append(fmt.pack(files))
    return found


def _mutate(data: bytes, random: Random) -> bytes:
    files = _files(data)
    if not files:
        return random.choice(_seeds())
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(files))
        content = files[name]
        match random.randrange(6):
            case 0:
                del files[name]
            case 1:
                files[mutation.text(name, random)] = content
            case 2:
                files[name] = files[random.choice(list(files))]
            case _ if name.startswith(LISTS):
                files[name] = _other_list(content, random)
            case _:
                files[name] = mutation.some_bytes(content, random)
        if not files:
            break
    return fmt.pack(files)


def _other_list(content: bytes, random: Random) -> bytes:
    try:
        changed = mutation.plain(json.loads(content), random)
        return json.dumps(changed, default=repr).encode(errors="replace")
    except (ValueError, RecursionError):
        return random.choice(_LISTS).encode()


def _files(data: bytes) -> dict[str, bytes]:
    try:
        told = cast(Any, fmt.unpack(data))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    return {name: body for name, body in told.items() if isinstance(name, str) and isinstance(body, bytes)}


def _run(data: bytes, folder: Path) -> None:
    lake = folder / "lake"
    rmtree(lake, ignore_errors=True)
    (lake / LISTS).mkdir(parents=True)
    for name, body in _files(data).items():
        path = lake / name
        if ".." in path.parts or not path.is_relative_to(lake):
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        except (OSError, ValueError):  # no name of a file
            continue
    try:
        database = open_lake(str(lake))
    except GputopError:
        pass
    else:
        try:
            for table in COLUMNS:
                database.query(f'SELECT * FROM "{table}"', _MOST_ROWS, _SECONDS)
        except GputopError:
            pass
        finally:
            database.close()
    with suppress(GputopError):
        known_in(str(lake))


TARGET = Target(_seeds, _mutate, _run)
