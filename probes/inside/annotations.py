"""Ranges that training loops, callbacks and schedulers name over a socket (docs/annotate.md).

Any program can send messages, so they are bounded and checked: a message names ranges of its sender,
which the kernel identifies, or of another process of the sender's user.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from probes.activities import activity_samples, unknown_rows
from probes.arrays import PIDS
from probes.proc import procfs
from probes.source import PROBLEM, Sample

MOST_BYTES: Final = 1_024  # of a datagram
LONGEST_NAME: Final = 200  # characters
A_SECOND, AT_ONCE = 1_000.0, 2_000.0  # messages of one user
_ROOT: Final = 0
MOST_OPEN: Final = 256  # ranges of a process
_MOST_PROCESSES: Final = 256  # of one user, with open ranges
_MOST_USERS: Final = 256
_MOST_REASONS: Final = 512  # each with a count of its own
_MOST_ROWS: Final = 20_000  # between two marks
_MOST_LINES: Final = 16  # of a datagram
_MOST_MEMBERS: Final = 64  # watched processes of a range
_MOST_UNSENT: Final = 1_000_000_000  # of a message
_KEYS: Final = frozenset({"begin", "end", "mark", "thread", "pid", "unsent"})
_ACTS: Final = ("begin", "end", "mark")


@dataclass(frozen=True, slots=True)
class Datagram:
    """A message with its sender (``pid`` in gputop's namespace) and its time on CLOCK_MONOTONIC."""

    message: bytes
    pid: int
    uid: int
    time_ns: int


@dataclass(slots=True)
class _Open:
    """A range that has begun; ``members``: the watched processes that it covers."""

    name: str
    begin: int
    pid: int
    numbered: int  # the thread, as its sender numbers it; -1: of no thread
    thread: int  # the machine's number of it
    uid: int
    members: set[int] = field(default_factory=set)


class _Allowance:
    """How many messages a user may still send; the oldest figures are forgotten first."""

    def __init__(self) -> None:
        self._left: dict[int, tuple[float, int]] = {}  # uid -> messages, when

    def spend(self, uid: int, now: int) -> bool:
        left, before = self._left.pop(uid, (AT_ONCE, now))
        left = min(AT_ONCE, left + A_SECOND * max(now - before, 0) / 1e9)
        self._left[uid] = (max(left - 1, 0.0), now)
        if len(self._left) > _MOST_USERS:
            del self._left[next(iter(self._left))]
        return left >= 1


class Annotations:
    """Consumes messages in one thread; yields the ended ranges at marks, in another."""

    def __init__(self) -> None:
        self._open: dict[int, list[_Open]] = {}  # by process
        self._done: list[tuple[_Open, int]] = []  # with its end
        self._allowance = _Allowance()
        self._refused: dict[str, int] = {}  # why -> how often
        self._reported: dict[str, int] = {}  # the count of the last sentence
        self._lock = threading.Lock()
        self._rows = (0, 0)  # since the mark before: how many, the first one's begin

    def consume(self, datagram: Datagram) -> None:
        lines = datagram.message.splitlines()
        pid, uid, now = datagram.pid, datagram.uid, datagram.time_ns
        with self._lock:
            for line in lines[:_MOST_LINES]:
                if not self._allowance.spend(uid, now):
                    self._refuse(f"user {uid} sends more than {A_SECOND:.0f} annotations a second")
                elif why := self._line(line, pid, uid, now):
                    self._refuse(why)
            if len(lines) > _MOST_LINES:
                self._refuse(f"a message has more than {_MOST_LINES} lines")

    def _refuse(self, why: str, count: int = 1) -> None:
        if why not in self._refused and len(self._refused) >= _MOST_REASONS:
            why = "further reasons"
        self._refused[why] = self._refused.get(why, 0) + count

    def _line(self, line: bytes, pid: int, uid: int, now: int) -> str:
        """Why a line is refused; "" where it is not."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return "a message is not JSON"
        acts = [key for key in _ACTS if isinstance(message, dict) and key in message]
        if len(acts) != 1 or not message.keys() <= _KEYS:
            return "a message has other keys than one of begin, end, mark, and thread, pid, unsent"
        name = message[acts[0]]
        if not isinstance(name, str) or len(name) > LONGEST_NAME or (not name and acts[0] != "end"):
            return f"a name is not a text of 1 to {LONGEST_NAME} characters"
        target, thread, unsent = message.get("pid", pid), message.get("thread", -1), message.get("unsent", 0)
        if {type(target), type(thread), type(unsent)} != {int} or unsent < 0:
            return "pid, thread or unsent is not a number"
        if not 0 < target < PIDS or thread >= PIDS:
            return "pid or thread is not the number of a process"
        name = name.encode(errors="replace").decode()  # JSON can name half of a character, UTF-8 cannot
        if unsent:
            self._refuse(f"process {pid} could not send while the queue was full", min(unsent, _MOST_UNSENT))
        if target != pid:
            try:
                target = procfs.numbered_by(pid, target)
            except OSError:
                return "a process names another one's ranges, and has ended before its message was read"
        if target != pid and uid not in (_ROOT, self._owner(target)):
            return f"user {uid} names ranges of a process that is not its own"
        numbered, thread = thread, self._thread(target, thread)
        return self._act(acts[0], _Open(name, now, target, numbered, thread, uid))

    def _thread(self, pid: int, numbered: int) -> int:
        """The machine's number of a thread, which in a container has another one.

        A thread that has ended by now has the number of its open ranges; without any, the sender's number.
        """
        if numbered < 0 or os.path.exists(f"/proc/{pid}/task/{numbered}"):
            return numbered
        known = {one.numbered: one.thread for one in self._open.get(pid, ())}
        with suppress(OSError):
            known |= procfs.thread_numbers(pid)
        return known.get(numbered, numbered)

    def _owner(self, pid: int) -> int:
        """The user of a process; where it has ended that of its open ranges, -1 without any."""
        with suppress(OSError):
            return os.stat(f"/proc/{pid}").st_uid
        return next((one.uid for one in self._open.get(pid, ())), -1)

    def _act(self, act: str, one: _Open) -> str:
        if act == "mark":
            self._finish(one, one.begin)
            return ""
        mine = self._open.get(one.pid, [])
        if act == "begin":
            processes = sum(rows[0].uid == one.uid for rows in self._open.values()) if not mine else 0
            if len(mine) >= MOST_OPEN or processes >= _MOST_PROCESSES:
                return "more ranges have begun than are kept"
            self._open.setdefault(one.pid, []).append(one)
            return ""
        for place in reversed(range(len(mine))):
            if mine[place].thread == one.thread and one.name in ("", mine[place].name):
                self._finish(mine.pop(place), one.begin)
                if not mine:
                    del self._open[one.pid]
                return ""
        return "a range ends that has not begun"

    def _finish(self, one: _Open, end: int) -> None:
        if len(self._done) < _MOST_ROWS:
            self._done.append((one, max(end, one.begin)))
        else:
            self._refuse("more ranges end at once than are kept")

    def at_mark(
        self,
        mark_ns: int,
        watched: Collection[int],
        ended: Mapping[int, int] = MappingProxyType({}),
        *,
        last: bool = False,
    ) -> Iterator[Sample]:
        """The ranges that have ended since the mark before.

        Args:
            mark_ns: When.
            watched: Processes that live. A range of a whole process covers its descendants, too.
            ended: Watched processes that have ended since the mark before, with their parents.
            last: No more will come: open ranges end here.
        """
        with self._lock:
            rows = self._since_mark(mark_ns, watched, ended, last=last)
            refused = self._newly_refused(last=last)
        self._rows = (len(rows), min((one.begin for one, _end, _pid in rows), default=0))
        if rows:
            yield from _samples(rows, mark_ns)
        for why, count in refused.items():
            yield Sample(PROBLEM, mark_ns, {"text": f"{why}: {count} annotations are left out"})

    def _since_mark(
        self, mark_ns: int, watched: Collection[int], ended: Mapping[int, int], *, last: bool
    ) -> list[tuple[_Open, int, int]]:
        """(range, end, process that it covers)."""
        every = {*watched, *ended}
        for pid, open_ranges in list(self._open.items()):
            if last or (pid not in every and not os.path.exists(f"/proc/{pid}")):
                del self._open[pid]
                for one in reversed(open_ranges):
                    self._finish(one, mark_ns)
        self._join(every, ended)
        rows = [(one, end, pid) for one, end in self._done for pid in sorted(one.members)[:_MOST_MEMBERS]]
        self._done = []
        return rows

    def _newly_refused(self, *, last: bool) -> dict[str, int]:
        """Counts by reason: the first, each that has doubled since the last sentence, and the last."""
        found = {}
        for why, count in self._refused.items():
            before = self._reported.get(why, 0)
            if count >= max(2 * before, 1) or (last and count > before):
                found[why] = self._reported[why] = count
        return found

    def rows_since_mark(self) -> tuple[int, int]:
        """How many rows the newest mark had, and when the first of them began."""
        return self._rows

    def _join(self, watched: Collection[int], ended: Mapping[int, int]) -> None:
        """Finds the watched processes that ranges are about."""
        every = [*(one for rows in self._open.values() for one in rows), *(one for one, _end in self._done)]
        others = set()
        for one in every:
            if one.pid in watched:
                one.members.add(one.pid)
            if one.thread < 0:
                others.add(one.pid)
        if not others:
            return
        below: dict[int, set[int]] = {pid: set() for pid in others}
        parents: dict[int, int] = {}
        for pid in watched:
            at, depth = pid, 0
            while at > 1 and depth < _MOST_MEMBERS:
                if at in below:
                    below[at].add(pid)
                if at not in parents:
                    parents[at] = ended[at] if at in ended else procfs.parent(at)
                at, depth = parents[at], depth + 1
        for one in every:
            if one.thread < 0:
                one.members |= below[one.pid]


def _samples(rows: list[tuple[_Open, int, int]], mark_ns: int) -> Iterator[Sample]:
    texts = ["", "range", "span"]
    numbers: dict[str, int] = {}
    table = unknown_rows(len(rows))
    for place, (one, end, pid) in enumerate(rows):
        if one.name not in numbers:
            numbers[one.name] = len(texts)
            texts.append(one.name)
        table["begin"][place], table["end"][place] = one.begin, end
        table["pid"][place], table["tid"][place] = pid, one.thread
        table["what"][place], table["name"][place] = 1 if one.thread >= 0 else 2, numbers[one.name]
    yield from activity_samples(table, texts, mark_ns)


def message(act: str, name: str, **more: Any) -> bytes:
    """A message to send: ``message("begin", "epoch 1", thread=7)``."""
    return json.dumps({act: name, **more}, ensure_ascii=False).encode()
