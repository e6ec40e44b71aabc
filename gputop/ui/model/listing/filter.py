"""The filter of processes: text, ``!`` and a regular expression, or ``gpu:0 user:x job:4711``."""

from __future__ import annotations

import re
import signal
import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from gputop.engine.frame import Frame, ProcessRow, ThreadRow
from gputop.ui.model.gpus.only_gpus import of_gpus
from gputop.ui.model.listing.process_table import belongs, job


class TooLongError(Exception):
    """The time limit is exceeded."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """A context with a limit of CPU time, in the main thread only, which handles signals.

    Raises:
        TooLongError: The limit is exceeded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, leave)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


SLOW = "this expression takes too long: avoid (...)+ or .* inside a repetition"
HINT = "text, !regex, gpu:0 user:x job:7 call:Memcpy state:blocked"
STATES = ("running", "runnable", "blocked", "exited", "storm")
_PATIENCE_S = 0.1  # of CPU time, for one process: a usual expression takes microseconds
_WORDS = re.compile(r'(?:[^\s"]|"[^"]*"?)+')  # an unclosed quote extends to the end
Test = Callable[[ProcessRow, Collection[int]], bool]


class FilterError(ValueError):
    """The text is not a filter; the message is for the user."""


class Search:
    """A regular expression over a process's texts.

    Some expressions take exponential time for some command lines, so it is dropped after one timeout.
    """

    def __init__(self, compiled: re.Pattern[str]) -> None:
        self.slow = False  # True after a timeout
        self._compiled = compiled

    def __call__(self, row: ProcessRow, _storms: Collection[int]) -> bool:
        if self.slow:
            return False
        try:
            with within(_PATIENCE_S):
                return self._compiled.search(words_of(row)) is not None
        except TooLongError:
            self.slow = True
            return False


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter."""

    text: str = ""  # as typed; "": everything passes
    tests: tuple[Test, ...] = ()  # all of them must hold
    search: Search | None = None  # the regular expression among them, if any

    @property
    def slow(self) -> bool:
        """True after a timeout: nothing passes any more."""
        return self.search is not None and self.search.slow

    def passes(self, row: ProcessRow, storms: Collection[int]) -> bool:
        """True if a process is listed; ``storms``: the pids in a storm."""
        return all(test(row, storms) for test in self.tests)


def parse_filter(text: str) -> Filter:
    """Parse a filter.

    All words must match; a word without a field is searched in pid, name, user, command line, container, pod
    and job, ignoring case. ``a,b`` after a field matches either; double quotes hold blanks.

    Raises:
        FilterError: An unknown field or value, or an invalid regular expression.
    """
    text = text.strip()
    if text.startswith("!"):
        search = _regex(text[1:])
        return Filter(text, (search,), search)
    words = (match.replace('"', "") for match in _WORDS.findall(text))
    return Filter(text, tuple(_word(word) for word in words if word))


def narrowed(frame: Frame, chosen: Filter, gpus: Collection[int] = ()) -> Frame:
    """Return the frame with the processes that pass a filter, and with these GPUs, () for all."""
    frame = of_gpus(frame, gpus)
    storms = {storm.pid for storm in frame.storms}
    rows, unwatched = (
        tuple(row for row in every if chosen.passes(row, storms) and _uses(row, gpus))
        for every in (frame.processes, frame.unwatched)
    )
    pids = {row.pid for row in rows}
    left = tuple(storm for storm in frame.storms if storm.pid in pids)
    return replace(frame, processes=rows, unwatched=unwatched, storms=left)


def _uses(row: ProcessRow, gpus: Collection[int]) -> bool:
    return not gpus or not set(gpus).isdisjoint(row.gpus or ())


def words_of(row: ProcessRow) -> str:
    whose = " ".join(filter(None, (row.container, belongs(row, "pod"), job(row))))
    return f"{row.pid} {row.name} {row.user} {row.command} {whose}".rstrip()


def _regex(pattern: str) -> Search:
    try:
        with warnings.catch_warnings():  # else printed over the screen
            warnings.simplefilter("ignore")
            return Search(re.compile(pattern, re.IGNORECASE))
    except (re.error, RecursionError, OverflowError) as error:
        raise FilterError(f"not a regular expression: {error}") from None


def _word(word: str) -> Test:
    name, colon, value = word.partition(":")
    if not colon:
        wanted = word.lower()
        return lambda row, _: wanted in words_of(row).lower()
    if name.lower() not in FIELDS:
        raise FilterError(f"no field {name!r}: use {', '.join(FIELDS)}; !{word} searches for the text")
    values = [part.lower() for part in value.split(",") if part]
    if not values:
        raise FilterError(f"{name}: needs a value after the colon")
    return FIELDS[name.lower()](values)


def _text(read: Callable[[ProcessRow], str]) -> Callable[[list[str]], Test]:
    return lambda values: lambda row, _: any(value in read(row).lower() for value in values)


def _numbers(name: str, values: list[str]) -> set[int]:
    if not all(value.isascii() and value.isdigit() for value in values):
        raise FilterError(f"{name}: needs a number, or several: {name}:0,1")
    return {int(value[:18]) for value in values}


def _gpu(values: list[str]) -> Test:
    wanted = _numbers("gpu", values)
    return lambda row, _: row.gpus is not None and not wanted.isdisjoint(row.gpus)


def _pid(values: list[str]) -> Test:
    wanted = _numbers("pid", values)
    return lambda row, _: row.pid in wanted or row.namespace_pid in wanted


def _rank(values: list[str]) -> Test:
    wanted = {str(number) for number in _numbers("rank", values)}
    return lambda row, _: belongs(row, "rank") in wanted


def _call(values: list[str]) -> Test:
    return lambda row, _: any(value in call.api.lower() for call in row.calls for value in values)


def _state(values: list[str]) -> Test:
    wrong = [value for value in values if value not in STATES]
    if wrong:
        raise FilterError(f"no state {wrong[0]!r}: use {', '.join(STATES)}")
    return lambda row, storms: any(_is(row, value, storms) for value in values)


def _is(row: ProcessRow, state: str, storms: Collection[int]) -> bool:
    if state == "storm":
        return row.pid in storms
    if state == "exited" or row.exited_ns is not None:
        return state == "exited" and row.exited_ns is not None
    return any(thread.state == state for thread in _calling_threads(row))


def _calling_threads(row: ProcessRow) -> list[ThreadRow]:
    """Return the threads that call CUDA, or all without any: a process always has a blocked helper."""
    return [thread for thread in row.threads if thread.cuda] or list(row.threads)


FIELDS: dict[str, Callable[[list[str]], Test]] = {
    "gpu": _gpu,
    "user": _text(lambda row: row.user),
    "call": _call,
    "state": _state,
    "pid": _pid,
    "name": _text(lambda row: row.name),
    "command": _text(lambda row: row.command),
    "container": _text(lambda row: f"{row.container} {belongs(row, 'pod_container')}"),
    "pod": _text(lambda row: belongs(row, "pod")),
    "namespace": _text(lambda row: belongs(row, "namespace")),
    "job": _text(job),
    "rank": _rank,
}
