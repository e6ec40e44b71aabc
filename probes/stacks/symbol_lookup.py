"""Looks up places of files, in a thread of its own: no file delays the reader of records.

Where a child reads the files of others, each file has a process there that keeps its functions; the least
recently used ones are closed, and opened anew with the next request. So few are open at a time.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from probes.code import elf, libraries
from probes.code.framepointers import Caller
from probes.code.symbols import Functions
from probes.files import file_reader, untrusted_files
from probes.files.mmap_events import Mapped

_MOST_FILES = 256
IDLE_S = 30.0  # a file is kept so long after the last request: it costs a descriptor, a removed one its space
MOST_PENDING = 1 << 14  # questions that wait for an answer, or to be repeated
_MOST_TALKS = 8  # processes
_MOST_SYMBOLS = 4_000_000  # 20 bytes each
_MOST_ANSWERS = 1 << 16  # some 200 bytes each
FRESH_S = 1.0  # so long an answer counts without checking the file for changes
AT_ONCE_S = 0.05  # the caller waits so long for a file that has answered in time so far
_WAITED_S = 0.2  # in all, of a second
_AGAIN_S = 60.0  # a file that did not answer may do so by then

Identity = tuple[int, int]
Place = tuple[int, bool]  # offset in a file; true if it is exact, else a call returns there
# name, where the function begins, address, caller; None: not known
Answer = tuple[str, int, int, Caller] | None


_LOG = logging.getLogger(__name__)
_NOTHING = object()


class NotYet(Exception):  # noqa: N818
    """A file is being read; try again later."""


@dataclass(slots=True)
class _Kept:
    """A file: its place while it is known, its reader, its answers."""

    file: untrusted_files.File | None = None
    answers: Callable[[Sequence[Place]], list[Any] | None] | None = None
    close: Callable[[], None] = field(default=lambda: None)
    symbols: int = 0
    known: dict[tuple[str, Place], Answer] = field(default_factory=dict)
    checked: float = 0.0
    dead: bool = False  # it cannot be read, or has changed: it is not used any more
    again: float = float("inf")  # when it is tried again
    used: float = 0.0


@dataclass(slots=True)
class _Question:
    mapping: Mapped
    place: Place
    done: threading.Event = field(default_factory=threading.Event)
    answer: Answer = None


class Lookups:
    """The files that were looked up, and their answers. ``lookup`` is for one thread."""

    def __init__(self) -> None:
        self._files: dict[Identity, _Kept] = {}  # the least recently used one first
        self.pending: dict[tuple[Identity, str, Place], _Question] = {}
        self.slow: set[Identity] = set()
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._second, self._waited = 0.0, 0.0
        self._kept_answers = 0

    def lookup(self, mapping: Mapped, place: Place) -> Answer:
        """The function at a place of a mapped file.

        Raises:
            NotYet: Try again later.
        """
        key = mapping.file, mapping.path, place
        now = time.monotonic()
        if (waiting := self.pending.get(key)) is None:
            kept = self._files.get(mapping.file)
            if kept is not None and (now < kept.again if kept.dead else now < kept.checked + FRESH_S):
                if kept.dead:
                    return None
                known = kept.known.get((mapping.path, place), _NOTHING)
                if known is not _NOTHING:
                    return known  # type: ignore[return-value]
            if len(self.pending) >= MOST_PENDING:
                self._forget_answered()
                if len(self.pending) >= MOST_PENDING:
                    raise NotYet
            waiting = self.pending[key] = _Question(mapping, place)
            self._begin()
            self._questions.put(waiting)
        if not waiting.done.wait(self._patience(mapping.file, now)):
            self._waited += time.monotonic() - now
            self.slow.add(mapping.file)
            raise NotYet
        self._waited += time.monotonic() - now
        self.slow.discard(mapping.file)
        del self.pending[key]
        return waiting.answer

    def _forget_answered(self) -> None:
        """Drops answers that were not fetched, as of processes that ended."""
        self.pending = {key: one for key, one in self.pending.items() if not one.done.is_set()}
        self.slow.intersection_update(key[0] for key in self.pending)

    def _patience(self, file: Identity, now: float) -> float:
        if now >= self._second + 1.0:
            self._second, self._waited = now, 0.0
        return 0.0 if file in self.slow else max(min(AT_ONCE_S, _WAITED_S - self._waited), 0.0)

    def wait(self, seconds: float) -> None:
        """Waits for all answers; not for ever."""
        deadline = time.monotonic() + seconds
        for question in list(self.pending.values()):
            question.done.wait(max(deadline - time.monotonic(), 0))

    def close(self) -> None:
        """Lets go of all files, as soon as the looking thread has come back."""
        if self._thread is not None:
            self._questions.put(None)
            self._thread.join(AT_ONCE_S)
            self._thread = None

    # -- the thread that reads -------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gputop-symbols", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (question := self._next()) is not None:
            try:
                question.answer = self._answer(question.mapping, question.place)
            except Exception:  # an unforeseen file must not end this for all others
                _LOG.exception("a file's functions could not be read")
            finally:  # whatever happens: else its stack would wait for ever
                question.done.set()
        for kept in self._files.values():
            _let_go(kept)
        self._files.clear()

    def _next(self) -> _Question | None:
        """The next question; None at the end. Lets go of files meanwhile."""
        while True:
            try:
                return self._questions.get(timeout=IDLE_S if self._files else None)
            except queue.Empty:
                self._make_room()

    def _answer(self, mapping: Mapped, place: Place) -> Answer:
        kept = self._files.pop(mapping.file, None)
        if kept is None or (kept.dead and time.monotonic() >= kept.again):
            reached = libraries.file_of(mapping)
            if reached is None:
                return None  # it may be reached by another process's path
            kept = _Kept()
            try:
                kept.file = untrusted_files.opened(*reached)
            except OSError as error:
                _bury(kept, error)
        self._files[mapping.file] = kept
        kept.used = time.monotonic()
        if not kept.dead:
            self._look_up(kept, mapping, place)
        self._make_room()
        return None if kept.dead else kept.known.get((mapping.path, place))

    def _look_up(self, kept: _Kept, mapping: Mapped, place: Place) -> None:
        shown = mapping.path.removesuffix(" (deleted)")
        known = (mapping.path, place) in kept.known
        why: Exception | None = None
        try:
            found = self._request(kept, shown, [] if known else [place])
        except (OSError, elf.ElfError, file_reader.UnreadableError, file_reader.EndedError) as error:
            found, why = None, error
        if found is None:  # a file written again does not match its mapping
            _bury(kept, why)
            self._kept_answers -= len(kept.known)
            kept.known.clear()
            _let_go(kept)
            return
        kept.checked = time.monotonic()
        if not known:
            if self._kept_answers >= _MOST_ANSWERS:
                self._kept_answers = 0
                for other in self._files.values():
                    other.known.clear()
            self._kept_answers += 1
            kept.known[mapping.path, place] = checked_answer(found[0]) if found else None

    def _request(self, kept: _Kept, shown: str, places: list[Place]) -> list[Any] | None:
        for last in (False, True):
            if kept.answers is None:
                _begin_talk(kept, shown)
            assert kept.answers is not None
            try:
                return kept.answers(places)
            except file_reader.EndedError:  # it has had its time, or something else has ended it
                _end_talk(kept)
                if last:
                    raise
        return None

    def _make_room(self) -> None:
        talking = {file: kept for file, kept in self._files.items() if kept.answers is not None}
        symbols = sum(kept.symbols for kept in talking.values())
        for file, kept in list(talking.items())[:-1]:  # the least recently used one first
            if len(talking) <= _MOST_TALKS and symbols <= _MOST_SYMBOLS:
                break
            symbols -= kept.symbols
            del talking[file]
            self._drop(file)
        idle = time.monotonic() - IDLE_S
        for file, kept in list(self._files.items()):
            if len(self._files) <= _MOST_FILES and kept.used > idle:
                break
            if len(self._files) > _MOST_FILES or not kept.dead:  # a dead one is not tried again at once
                self._drop(file)

    def _drop(self, file: Identity) -> None:
        """Closes a file; a later request reads it again, since each answer would without its process."""
        kept = self._files.pop(file)
        self._kept_answers -= len(kept.known)
        _let_go(kept)


def _begin_talk(kept: _Kept, shown: str) -> None:
    """Raises OSError, elf.ElfError, reader.UnreadableError."""
    assert kept.file is not None
    reader = file_reader.current()
    if reader is None:
        functions = Functions(kept.file.again())
        kept.symbols, kept.close = len(functions), functions.close
        kept.answers = lambda places: list(functions.answers(places)) if functions.unchanged else None
        return
    talk = reader.converse("functions", [], kept.file.identity, shown, kept.file.descriptor)
    kept.symbols, kept.close = int(talk.first) if isinstance(talk.first, int) else 0, talk.close
    kept.answers = talk.request


def _bury(kept: _Kept, why: Exception | None) -> None:
    """It is not used any more; where it only did not answer in time, for a while."""
    kept.dead = True
    if isinstance(why, OSError) and why.errno == errno.ETIMEDOUT:
        kept.again = time.monotonic() + _AGAIN_S


def _end_talk(kept: _Kept) -> None:
    kept.close()
    kept.answers, kept.close, kept.symbols = None, (lambda: None), 0


def _let_go(kept: _Kept) -> None:
    _end_talk(kept)
    file, kept.file = kept.file, None
    if file is not None:
        with contextlib.suppress(OSError):
            file.close()


def checked_answer(found: Any) -> Answer:
    """A validated answer, since it comes from a file that anybody may have written."""
    try:
        address, name, begin, caller = found
        if not isinstance(name, str) or len(name) > elf.LONGEST_NAME:
            return None
        return name, _address(begin), _address(address), Caller(caller)
    except (TypeError, ValueError):
        return None


def _address(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError(value)
    return value
