"""What workers of a Dask cluster answer: rows of any shape, of any table, for any recording."""

from __future__ import annotations

from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, cast

from gputop.errors import GputopError
from gputop.fleet.explain_task import ExplainOutcome, Task
from gputop.fleet.ingest import IngestRun
from gputop.fleet.lake.lake import add_piece, adding_to
from gputop.fleet.lake.lake_sources import Found
from gputop.fleet.lake.lake_tables import COLUMNS
from gputop.fleet.on_dask import DaskClient
from replay.coding import file_format as fmt
from tests import made_lake
from tests.fuzz import mutation
from tests.fuzz.target import Target

_LONGEST = 150_000  # bytes; what is doubled again and again is no longer a message


def _seeds() -> list[bytes]:
    """Each the answers to a batch: a list of outcomes, or a sentence."""
    mutation.one_arena()
    with TemporaryDirectory() as name, adding_to(f"{name}/lake"):  # what writes Parquet has its threads then
        add_piece(f"{name}/lake", made_lake.sessions(1))
    whole = made_lake.sessions(3)
    rows = {table: list(map(dict, whole.get(table, ()))) for table in COLUMNS}
    one = {"rows": rows, "session_id": "0" * 64}
    nothing = {"rows": {table: [] for table in COLUMNS}, "session_id": None}
    return [fmt.pack(told) for told in ([one], [nothing], [one, nothing], "install the same", [], None)]


def _mutate(data: bytes, random: Random) -> bytes:
    try:
        told = fmt.unpack(data)
    except (ValueError, RecursionError):
        return random.choice(_seeds())
    for _ in range(random.choice((1, 1, 2, 5))):
        told = mutation.plain(told, random)
    try:
        changed = fmt.pack(told)
    except (ValueError, TypeError, OverflowError):
        return mutation.some_bytes(data, random)
    return changed if len(changed) < _LONGEST else data


class _Client:
    """A cluster that has answered this at once."""

    def __init__(self, told: Any) -> None:
        self._told = told

    def nthreads(self) -> dict[str, int]:
        return {"one": 1}

    def submit(self, *_words: Any, **_named: Any) -> Any:
        return self

    def cancel(self, _futures: Any) -> None: ...

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self._told


def _as_told(one: Any) -> Any:
    """An outcome, as pickle would make it: no field of it is looked at."""
    if not isinstance(one, dict) or not {"rows", "session_id"} <= {*one}:
        return one
    return ExplainOutcome(one["rows"], one["session_id"])


def _run(data: bytes, folder: Path) -> None:
    try:
        told = cast(Any, fmt.unpack(data))
    except (ValueError, RecursionError):
        return
    told = [*map(_as_told, told)] if isinstance(told, list) else told
    lake = folder / "lake"
    rmtree(lake, ignore_errors=True)
    task = Task("/data/1.msgpack", None, "version")
    try:
        with adding_to(str(lake)):
            run = IngestRun(str(lake), Found([task]), frozenset())
            for done, outcome in DaskClient(_Client(told), "here", print).outcomes([task], lambda: False):
                run.consume(done, outcome)
            run.keep()
    except GputopError as error:
        if len(str(error)) > 2000:
            raise AssertionError("a sentence that nobody reads") from error


TARGET = Target(_seeds, _mutate, _run)
