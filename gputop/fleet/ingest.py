"""Takes recordings into a lake: each content once, however often and under whatever name it comes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputop.fleet.lake import add_piece, adding_to, known_in
from gputop.fleet.tables import COLUMNS, Row
from gputop.fleet.work import content_hash, unreadable
from gputop.fleet.workers import Task, outcomes

_SUFFIXES = (".msgpack", ".gputop")
_PIECE = 256  # rows of a table that are written together


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a run did, in files.

    Attributes:
        explained: Taken in.
        known: Their content was in the lake, or came twice.
        problems: Rows of what is torn, lossy or unreadable; of the last kind nothing else is known.
    """

    explained: int
    known: int
    problems: tuple[Row, ...]


def ingest(paths: Iterable[str], lake: str, workers: int) -> Ingested:
    """Explains recordings and adds them to a lake.

    Args:
        paths: Files, and folders of which every .msgpack and .gputop is meant.
        lake: A folder; made where it is not there.
        workers: So many processes.

    Raises:
        GputopError: The lake cannot be written, or another run adds to it.
    """
    with adding_to(lake):
        tasks, same, failed = _tasks(paths, known_in(lake))
        problems: list[Row] = list(failed)
        held: dict[str, list[Row]] = {table: [] for table in COLUMNS}
        explained = waiting = 0
        for (path, session_id), outcome in outcomes(tasks, workers):
            if outcome is None:  # not kept: the next run tries again
                text = "workers ended while they explained it, for want of memory or by a signal"
                problems.append(unreadable(path, text, session_id))
                continue
            for table, rows in outcome.rows.items():
                held[table] += [row for row in rows if row["session_id"]]  # else: the next run tries again
            explained += len(outcome.rows["sessions"])
            problems += outcome.rows["problems"]
            waiting = max(map(len, held.values()))
            if waiting >= _PIECE:
                add_piece(lake, held)
                held, waiting = {table: [] for table in COLUMNS}, 0
        if waiting:
            add_piece(lake, held)
    return Ingested(explained, same, tuple(problems))


def _tasks(paths: Iterable[str], known: frozenset[str]) -> tuple[Sequence[Task], int, Sequence[Row]]:
    """What is to be explained, how many are known already, what cannot be read."""
    seen, same = set(known), 0
    tasks: list[Task] = []
    failed: list[Row] = []
    for path in _files(paths):
        try:
            session_id = content_hash(path)
        except OSError as error:
            failed.append(unreadable(path, f"{path} cannot be read: {error.strerror}", None))
            continue
        if session_id in seen:
            same += 1
        else:
            seen.add(session_id)
            tasks.append((path, session_id))
    return tasks, same, failed


def _files(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, below, names in os.walk(path):
            below.sort()
            yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(_SUFFIXES))
