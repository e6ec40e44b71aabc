"""The recordings that may be asked: files that were named, and those in folders that were named."""

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
_KEPT = 16  # recordings of which answers are kept
_ANSWERS = 32  # of each
_MOST_FILES = 10_000
_WORK = threading.Semaphore(2)  # so many recordings are read at a time, whoever asks: each takes memory
_T = TypeVar("_T")


@dataclass
class Recording:
    """One recording; what was found out about it once is kept. Several threads may ask."""

    id: str
    path: str
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _known: OrderedDict[Any, Any] = field(default_factory=OrderedDict)

    def totals(self) -> Stats:
        """What ``gputop stats`` says."""
        return self._once("totals", lambda: functions.stats(self.path))

    def inspected(self) -> InspectDocument:
        """What ``gputop inspect`` says."""
        return self._once("inspected", lambda: self._open(inspect))

    def missing(self) -> tuple[str, ...]:
        """What of it is not in the file, in sentences; what is damaged, as far as it was read on opening."""
        return self._once("missing", lambda: self._open(about_holes))

    def stacks(self) -> StackTimes:
        return self._once("stacks", lambda: self._open(stack_times))

    def database(self) -> Database:
        return self._once("database", lambda: self._open(Database))

    def report(
        self, pids: Sequence[int] = (), start_s: float | None = None, end_s: float | None = None
    ) -> Report:
        """What ``gputop explain`` says, of a part or of processes."""
        key = "report", tuple(sorted(pids)), start_s, end_s
        return self._once(key, lambda: functions.explain(self.path, pids=pids, start_s=start_s, end_s=end_s))

    def frame(self, at_s: float | None) -> Frame:
        """The frame at a moment; None: the last one."""

        def read(session: Any) -> Frame:
            frame: Frame = session.frame_at(session.duration_ns / 1e9 if at_s is None else at_s)
            return frame

        return self._once(("frame", at_s), lambda: self._open(read))

    def lanes(self) -> tuple[Lanes, int, dict[int, str]]:
        """The timeline, where it starts (CLOCK_MONOTONIC, ns), and what threads are called."""
        return self._once("lanes", lambda: self._open(_lanes))

    def read(self, what: str, query: Callable[[Session], _T]) -> _T:
        """What a reader of all of it finds, by a name of its own."""
        return self._once(("read", what), lambda: self._open(query))

    def _open(self, query: Callable[[Any], _T]) -> _T:
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


def _lanes(session: Any) -> tuple[Lanes, int, dict[int, str]]:
    report, found = pictured(session)
    return found.lanes, report.start_ns, found.names


class Catalogue:
    """What may be opened, by id. Nothing else is, whatever an assistant asks for."""

    def __init__(self, named: Sequence[str], *, none: bool = False) -> None:
        """Take files and folders.

        Raises:
            CommandError: One of them is not there, or none is named.
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
        """id -> path, in the order in which they were named, in a folder by name; folders are read anew."""
        found: dict[str, str] = {}
        for path in dict.fromkeys(one for named in self._named for one in _files(named)):
            name = _id(os.path.basename(path))
            number = 2
            while (unique := name if number == 2 else f"{name}-{number - 1}") in found:
                number += 1
            found[unique] = path
        return found

    def get(self, id: str | None) -> Recording:
        """The recording of that id; None: the only one.

        Raises:
            CommandError: There is none of that id, or more than one to choose from.
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
    """The recordings that a name stands for; a link in a folder that leads out of it is none of them."""
    if not os.path.isdir(named) or _is_recording_in_segments(named):
        return [named]
    inside = os.path.realpath(named)
    names = sorted(os.listdir(named))[:_MOST_FILES]
    paths = [os.path.join(named, name) for name in names]
    return [path for path in paths if _is_recording(path) and _lies_in(path, inside)]


def _is_recording(path: str) -> bool:
    return (path.endswith(_SUFFIXES) and os.path.isfile(path)) or _is_recording_in_segments(path)


def _is_recording_in_segments(path: str) -> bool:
    try:
        names = os.listdir(path) if os.path.isdir(path) else []
    except OSError:
        return False
    return any(name.endswith(".gputop") for name in names)


def _lies_in(path: str, folder: str) -> bool:
    return os.path.commonpath([os.path.realpath(path), folder]) == folder


def _id(name: str) -> str:
    """The name of a file as an id: letters, digits, ``_.-``."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "_.-") else "-" for char in name)
    return kept[:64] or "session"
