"""The recordings that may be queried: named files, and those in named folders."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gputop.analysis.answer.picture import Lanes
from gputop.analysis.answer.report import Report
from gputop.api import functions
from gputop.api.holes import about_holes
from gputop.api.looking import pictured
from gputop.api.session import Session, open_session
from gputop.documents.inspect_schema import InspectDocument
from gputop.engine.frame import Frame
from gputop.engine.session_totals import Stats
from gputop.errors import USAGE, CommandError
from gputop.exchange.stacks import StackTimes, stack_times
from gputop.files.inspection import inspect
from gputop.query.database import Database

_SUFFIXES = (".msgpack", ".gputop")
_KEPT = 16  # recordings with cached results
_ANSWERS = 32  # of each
_MOST_FILES = 10_000
_WORK = threading.Semaphore(2)  # recordings that are read at a time: each needs memory
_T = TypeVar("_T")


@dataclass
class Recording:
    """One recording with cached results, for several threads."""

    id: str
    path: str
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _known: OrderedDict[Any, Any] = field(default_factory=OrderedDict)

    def totals(self) -> Stats:
        """Return the result of ``gputop stats``."""
        return self._once("totals", lambda: functions.stats(self.path))

    def inspected(self) -> InspectDocument:
        """Return the result of ``gputop inspect``."""
        return self._once("inspected", lambda: self._open(inspect))

    def missing(self) -> tuple[str, ...]:
        """Return sentences about missing records, and about damage, as far as it was read on opening."""
        return self._once("missing", lambda: self._open(about_holes))

    def stacks(self) -> StackTimes:
        return self._once("stacks", lambda: self._open(stack_times))

    def database(self) -> Database:
        return self._once("database", lambda: self._open(Database))

    def report(
        self, pids: Sequence[int] = (), start_s: float | None = None, end_s: float | None = None
    ) -> Report:
        """Return the result of ``gputop explain``, of a part or of processes."""
        key = "report", tuple(sorted(pids)), start_s, end_s
        return self._once(key, lambda: functions.explain(self.path, pids=pids, start_s=start_s, end_s=end_s))

    def frame(self, at_s: float | None) -> Frame:
        """Return the frame at a moment; None: the last one."""

        def read(session: Session) -> Frame:
            return session.frame_at(session.duration_ns / 1e9 if at_s is None else at_s)

        return self._once(("frame", at_s), lambda: self._open(read))

    def lanes(self) -> tuple[Lanes, int, dict[int, str]]:
        """Return the timeline, its start (CLOCK_MONOTONIC, ns), and the names of threads."""

        def read(session: Session) -> tuple[Lanes, int, dict[int, str]]:
            report, found = pictured(session)
            return found.lanes, report.start_ns, found.names

        return self._once("lanes", lambda: self._open(read))

    def read(self, what: str, query: Callable[[Session], _T]) -> _T:
        """Return the result of another query, cached by name."""
        return self._once(("read", what), lambda: self._open(query))

    def _open(self, query: Callable[[Session], _T]) -> _T:
        with open_session(self.path) as session:
            return query(session)

    def _once(self, key: Any, make: Callable[[], _T]) -> _T:
        with self._lock:
            if key not in self._known:
                with _WORK:
                    self._known[key] = make()
                while len(self._known) > _ANSWERS:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            found: _T = self._known[key]
            return found


class Catalogue:
    """The recordings that may be opened, by id; no others, whatever an assistant requests."""

    def __init__(self, named: Sequence[str], *, none: bool = False) -> None:
        """Open files and folders to queries.

        Raises:
            CommandError: One of them does not exist, or none is named.
        """
        for path in named:
            if not os.path.exists(path):
                raise CommandError(f"there is no file or folder {path}", USAGE)
        if not named and not none:
            raise CommandError("name the recordings, or folders of recordings, to query", USAGE)
        self._named = [os.path.abspath(path) for path in named]
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, int], Recording] = OrderedDict()

    def ids(self) -> dict[str, str]:
        """Return id -> path in the order of the names, within folders by name; folders are read each time."""
        found: dict[str, str] = {}
        for path in dict.fromkeys(one for named in self._named for one in _files(named)):
            name = _id(os.path.basename(path))
            number = 2
            while (unique := name if number == 2 else f"{name}-{number - 1}") in found:
                number += 1
            found[unique] = path
        return found

    def get(self, id: str | None) -> Recording:
        """Return the recording of an id; None: the only one.

        Raises:
            CommandError: The id is unknown, or None of several.
        """
        ids = self.ids()
        if id is None:
            if len(ids) != 1:
                raise CommandError(f"there are {len(ids)} sessions: name one of list_sessions")
            id = next(iter(ids))
        if id not in ids:
            raise CommandError("there is no session with this id: see list_sessions")
        return self._recording(id, ids[id])

    def _recording(self, id: str, path: str) -> Recording:
        try:
            status = os.stat(path)
        except OSError as error:
            raise CommandError(f"session {id} cannot be read any more: {error.strerror}") from error
        key = path, status.st_mtime_ns, status.st_size
        with self._lock:
            if key not in self._kept:
                self._kept[key] = Recording(id, path)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]


def _files(named: str) -> list[str]:
    """The recordings of a name; in a folder without links that lead out of it."""
    if not os.path.isdir(named) or _is_recording_in_segments(named):
        return [named]
    inside, found = os.path.realpath(named), []
    for name in sorted(os.listdir(named))[:_MOST_FILES]:
        path = os.path.join(named, name)
        is_file = path.endswith(_SUFFIXES) and os.path.isfile(path)
        if not (is_file or _is_recording_in_segments(path)):
            continue
        if os.path.commonpath([os.path.realpath(path), inside]) == inside:
            found.append(path)
    return found


def _is_recording_in_segments(path: str) -> bool:
    try:
        names = os.listdir(path) if os.path.isdir(path) else []
    except OSError:
        return False
    return any(name.endswith(".gputop") for name in names)


def _id(name: str) -> str:
    """The name of a file as an id: letters, digits, ``_.-``."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "_.-") else "-" for char in name)
    return kept[:64] or "session"
