"""Whether all processes that made CUDA calls have ended: then there is nothing newer to explain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from probes.samples import process_data
from probes.schema import Kind, Records
from probes.source import Item, Sample

_MOST_GONE = 1024  # of processes that have ended the ends that are kept


@dataclass(frozen=True, slots=True)
class End:
    """The end of the last process that made CUDA calls.

    Attributes:
        pid: Its number.
        name: Its name, "" where it is not known.
        time_ns: When it ended, CLOCK_MONOTONIC.
        code: How, as ``wait`` has it; None where that is not known.
        users: How many processes made CUDA calls, this one among them; 0: it is not known to have made any.
    """

    pid: int
    name: str
    time_ns: int
    code: int | None
    users: int


class Ends:
    """Follows which processes make CUDA calls, and which of them live.

    Attributes:
        called_ns: The mark after the newest call, CLOCK_MONOTONIC; 0: there was none.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._alive: set[int] = set()
        self._names: dict[int, str] = {}
        self._users = 0
        self._last: End | None = None
        self._gone: dict[int, End] = {}  # those that ended last: their calls may come after word of their end
        self._only = -1  # the process that makes all calls, as far as there is one
        self.called_ns = 0
        self._called = False  # since the last mark

    def copy(self) -> Ends:
        """One that goes on by itself."""
        other = Ends()
        other._alive, other._names = self._alive.copy(), self._names.copy()
        other._users, other._last, other._only = self._users, self._last, self._only
        other._gone = self._gone.copy()
        other.called_ns, other._called = self.called_ns, self._called
        return other

    @property
    def last(self) -> End | None:
        """The last end, while no process that made CUDA calls lives."""
        return self._last if not self._alive else None

    def take(self, item: Item) -> None:
        """Take one item."""
        if not isinstance(item, Sample):
            self._calls(item)
        elif (data := process_data(item)) is not None:
            pid = data["pid"]
            if "name" in data:
                self._names[pid] = str(data["name"])
            if data.get("exited_ns") is not None:
                self._ended(pid, int(data["exited_ns"] or 0), data.get("exit_code"))

    def at_mark(self, mark_ns: int) -> None:
        """A tick has ended."""
        if self._called:
            self._called, self.called_ns = False, mark_ns

    def _calls(self, records: Records) -> None:
        calls, pids = records["kind"] == Kind.CALL, records["pid"]
        if not calls.any():
            return
        self._called = True
        if pids[0] == self._only and bool((pids == self._only).all()):
            return  # of one process, which is known: the usual case
        calling = pids[calls]
        for pid in np.unique(calling).tolist():
            if pid in self._alive:
                continue
            end = self._gone.get(pid)
            if end is None or int(records["t_end"][calls & (pids == pid)].max()) > end.time_ns:
                self._alive.add(pid)
                self._users += 1
            elif not end.users:  # it is told now that it used CUDA at all
                self._users += 1
                self._at_end(replace(end, users=self._users))
        self._only = int(calling[0]) if len(self._alive) == 1 and len(calling) else -1

    def _ended(self, pid: int, time_ns: int, code: int | None) -> None:
        end = End(pid, self._names.pop(pid, ""), time_ns, code, 0)
        self._gone.pop(pid, None)
        self._gone[pid] = end
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        if pid in self._alive:
            self._alive.discard(pid)
            self._only = -1
            self._at_end(replace(end, users=self._users))

    def _at_end(self, end: End) -> None:
        self._gone[end.pid] = end
        if self._last is None or end.time_ns >= self._last.time_ns:
            self._last = end
