"""Ingests recordings into a lake: each content once, whatever its name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gputop.api.reading import SILENT, Progress
from gputop.fleet.explain_task import ExplainOutcome, Task, unreadable
from gputop.fleet.lake.lake import add_piece, adding_to, known_in
from gputop.fleet.lake.lake_sources import Found, sources
from gputop.fleet.lake.lake_tables import COLUMNS, Row
from gputop.fleet.lake.urls import shown
from gputop.fleet.workers import Engine, processes

_PIECE = 256  # rows of a table that are written together
_MANY = {
    "collectives": 1 << 15,
    "before_collectives": 1 << 15,
}  # the same for tables with hundreds of rows a session


@dataclass(frozen=True, slots=True)
class Ingested:
    """Result of a run, in files."""

    explained: int  # newly ingested
    known: int  # content already in the lake, or duplicate
    # rows of torn, lossy or unreadable files; of unreadable ones nothing else is known
    problems: tuple[Row, ...]
    left: int = 0  # not processed because of an interrupt


def ingest(
    paths: Iterable[str],
    lake: str,
    workers: int,
    *,
    engine: Engine | None = None,
    progress: Progress = SILENT,
) -> Ingested:
    """Explain recordings and add them to a lake.

    Args:
        paths: Files, folders (every .msgpack and .gputop in them), and URLs of both. A folder of
            segments is one recording.
        lake: A folder, which is made if needed, or a URL.
        workers: Processes of this machine.
        engine: Replaces these processes.
        progress: Reports progress, and may stop the run; what is explained by then is kept.

    Raises:
        GputopError: The lake cannot be written, or another run adds to it; what is explained by then is kept.
    """
    with adding_to(lake):
        known, versions = known_in(lake)
        found = sources(paths, known, versions, progress)
        progress.goes_on("explaining")
        progress.parts(0, max(len(found.tasks), 1))
        run = IngestRun(lake, found, known)
        explain = engine or processes(workers)
        try:
            for task, outcome in explain(found.tasks, lambda: progress.stopped):
                run.consume(task, outcome)
                progress.parts(run.done, len(found.tasks))
        finally:
            run.keep()
    left = found.left + len(found.tasks) - run.done
    return Ingested(run.explained, run.known, tuple(run.problems), left)


class IngestRun:
    """Results of a run that are not written yet."""

    def __init__(self, lake: str, found: Found, known: frozenset[str]) -> None:
        self._lake, self._seen = lake, {*known}
        self.problems, self.known = found.problems, found.known
        self.explained = self.done = 0
        self._begin()

    def consume(self, task: Task, outcome: ExplainOutcome | None) -> None:
        """Add a recording's outcome; None: unknown, so that the next run tries again."""
        self.done += 1
        if outcome is None:
            text = "workers ended while explaining it (out of memory, or a signal)"
            self.problems.append(unreadable(shown(task.path), text, task.session_id))
            return
        if task.version is not None and outcome.session_id is not None:
            self._versions.append(task.version)
            if outcome.session_id in self._seen:  # known only after fetching
                self.known += 1
                return
            self._seen.add(outcome.session_id)
        for table, rows in outcome.rows.items():
            self._held[table] += [
                row for row in rows if row.get("session_id", True)
            ]  # without an id: tried again
        self.explained += len(outcome.rows["sessions"])
        self.problems += outcome.rows["problems"]
        if any(len(rows) >= _MANY.get(table, _PIECE) for table, rows in self._held.items()):
            self.keep()

    def keep(self) -> None:
        held, versions = self._held, self._versions
        self._begin()
        if versions or any(held.values()):
            add_piece(self._lake, held, versions)

    def _begin(self) -> None:
        self._held: dict[str, list[Row]] = {table: [] for table in COLUMNS}
        self._versions: list[str] = []
