"""Calls that allocate or free memory, in the order of their effects, with the GPU of each.

Of nested calls the outermost counts. Its record comes last, so a mark may lie between: then the inner one has
counted already, and the outer one lists it (``counted``). The GPU is the one that the thread has chosen by
``cudaSetDevice``, by the process's own number; it is unknown for a thread whose choice may be missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from gputop.engine.calls.cuda_errors import OUT_OF_MEMORY
from gputop.engine.fork_state import apart
from probes import api
from probes.api_semantics import Memory, Role
from probes.schema import CallFlag, ExitFlag, Kind, Records, join, select

USES: tuple[Memory, ...] = get_args(Memory)
ENDED: Memory = ""  # in place of a use: the process ended, or became another program
BEGINNING = frozenset({"free", "unregister", "unmap", "release"})  # these take effect when they begin
UNKNOWN = -1  # as the number of a GPU
_SET = len(USES)  # in place of a use: cudaSetDevice
_MOST_REMEMBERED = 1 << 14  # threads or processes; then the oldest is forgotten
_MOST_INNER = 8  # calls within one


class Inner(NamedTuple):
    """A nested call that counted before the call around it returned."""

    begin: int
    end: int
    pid: int
    tid: int
    use: Memory
    ret: int
    address: int
    size: int


class Effect(NamedTuple):
    """A call that counts."""

    at: int  # the moment of its effect, CLOCK_MONOTONIC, ns
    row: Any  # its record
    use: Memory  # its kind; ``ENDED`` for the end of a process
    device: int  # the GPU by the process's own number, or ``UNKNOWN``
    counted: tuple[Inner, ...]  # calls that counted in its place before a mark that lies within it


class MemoryCalls:
    """Consumes records, and returns the calls that count at a mark."""

    def __init__(self) -> None:
        self._uses = _uses([row.name for row in api.BY_OP])
        self._rows: tuple[Records, ...] = ()
        self._inner: dict[int, tuple[Inner, ...]] = {}  # by thread
        self._chosen: dict[int, tuple[int, int]] = {}  # thread -> its process, the GPU that it chose
        self._named: dict[int, frozenset[int]] = {}  # pid -> GPUs that its calls worked on
        self._begun: set[int] = set()  # processes recorded from their program's begin, without a loss

    def copy(self) -> MemoryCalls:
        """Return a fork of the state."""
        return apart(self)

    def name(self, names: list[str]) -> None:
        """Set the names of the session's functions, by their numbers."""
        self._uses = _uses(names)

    def one_gpu(self, pid: int) -> bool:
        """Return True if no call of a process is known to work on another GPU than the first."""
        return self._named.get(pid, frozenset()) <= {0}

    def uses(self, pid: int, devices: Iterable[int]) -> None:
        """Note that a process's calls worked on these GPUs, even without records of them."""
        self._named[pid] = self._named.get(pid, frozenset()) | frozenset(devices)

    def add(self, records: Records) -> None:
        """Consume records of any kind."""
        kinds, code = records["kind"], records["ret"]
        use = self._uses.take(records["op"], mode="clip")
        wanted = (kinds == np.uint8(Kind.CALL)) & (use > 0) & ((code == 0) | (code == OUT_OF_MEMORY))
        wanted &= (records["flags"] & np.uint16(CallFlag.ABANDONED)) == 0
        dead = (kinds == np.uint8(Kind.EXIT)) & ((records["flags"] & np.uint16(ExitFlag.GROUP_DEAD)) != 0)
        wanted |= dead | (kinds == np.uint8(Kind.EXEC))
        if wanted.any():
            self._rows = (*self._rows, select(records, wanted))

    def lost(self) -> None:
        """Forget each thread's GPU until its next choice: records were lost."""
        self._chosen, self._begun = {}, set()

    def effects(self) -> list[Effect]:
        """Return the calls that count since the last time, in order."""
        if not self._rows:
            return []
        rows, self._rows = join([*self._rows]), ()
        choosing = (rows["kind"] == np.uint8(Kind.CALL)) & (self._uses.take(rows["op"], mode="clip") == _SET)
        choices = _Choices(select(rows, choosing))
        rows = select(rows, ~choosing)
        found: list[Effect] = []
        for at, row, use, counted in self._in_order(rows):
            pid, tid = int(row["pid"]), int(row["tid"])
            if use == ENDED:
                self._end(pid, died=row["kind"] == Kind.EXIT)
                choices.forget(pid, at)
            default = pid, 0 if pid in self._begun else UNKNOWN
            owner, device = choices.before(tid, at) or self._chosen.get(tid, default)
            device = device if owner == pid and use != ENDED else UNKNOWN
            if device != UNKNOWN:
                self.uses(pid, (device,))
            found.append(Effect(at, row, use, device, counted))
        self._remember(choices)
        return found

    def _in_order(self, rows: Records) -> list[tuple[int, Any, Memory, tuple[Inner, ...]]]:
        """Return (moment of its effect, its record, its use, calls counted before) of each that counts."""
        end = np.minimum(rows["t_end"], np.uint64(1 << 62)).astype(np.int64)
        begin = end - np.minimum(rows["duration"], 1 << 62).astype(np.int64)
        found: list[tuple[int, Any, Memory, tuple[Inner, ...]]] = []
        outer: dict[int, int] = {}  # thread -> when its outermost call ends
        for place in np.lexsort((-end, begin, rows["tid"])).tolist():
            row, since, until = rows[place], int(begin[place]), int(end[place])
            if row["kind"] != Kind.CALL:
                found.append((until, row, ENDED, ()))
                continue
            tid = int(row["tid"])
            if until <= outer.get(tid, -1):
                continue
            outer[tid] = until
            use = USES[int(self._uses[int(row["op"])])]
            counted = tuple(
                one for one in self._inner.pop(tid, ()) if since <= one.begin and one.end <= until
            )
            found.append((since if use in BEGINNING else until, row, use, counted))
            if row["flags"] & np.uint16(CallFlag.NESTED):
                numbers = int(row["ret"]), int(row["aux"]), int(row["bytes"])
                own = Inner(since, until, int(row["pid"]), tid, use, *numbers)
                self._inner[tid] = (*counted, own)[-_MOST_INNER:]
        found.sort(key=lambda one: one[0])
        return found

    def _remember(self, choices: _Choices) -> None:
        for tid, pid, device in choices.last():
            self._chosen.pop(tid, None)
            self._chosen[tid] = pid, device
        for pid, device in choices.named():
            self.uses(pid, (device,))
        for table in (self._chosen, self._inner, self._named):
            while len(table) > _MOST_REMEMBERED:
                table.pop(next(iter(table)))

    def _end(self, pid: int, *, died: bool) -> None:
        """Forget a process that ended, or began another program."""
        self._named.pop(pid, None)
        for tid in [tid for tid, (owner, _device) in self._chosen.items() if owner == pid]:
            del self._chosen[tid]
        for tid in [tid for tid, inner in self._inner.items() if inner[0].pid == pid]:
            del self._inner[tid]
        if died:
            self._begun.discard(pid)
        else:
            self._begun.add(pid)


class _Choices:
    """The GPUs that threads chose between two marks."""

    def __init__(self, rows: Records) -> None:
        rows = select(rows, rows["ret"] == 0)
        rows = rows[np.lexsort((rows["t_end"], rows["tid"]))]
        self._tids, self._pids = rows["tid"].astype(np.int64), rows["pid"].astype(np.int64)
        self._ends = np.minimum(rows["t_end"], np.uint64(1 << 62)).astype(np.int64)
        self._devices = (rows["aux"] & np.uint64(0xFF)).astype(np.int64)
        self._kept = np.ones(len(rows), np.bool_)

    def before(self, tid: int, at: int) -> tuple[int, int] | None:
        """Return (process, GPU) of a thread's choice before a moment; None: no choice here."""
        first, end = np.searchsorted(self._tids, (tid, tid + 1)).tolist()
        place = first + int(np.searchsorted(self._ends[first:end], at, side="right")) - 1
        if place < first or not self._kept[place]:
            return None
        return int(self._pids[place]), int(self._devices[place])

    def forget(self, pid: int, at: int) -> None:
        """Forget the choices of a process that ended, or became another program."""
        self._kept &= (self._pids != pid) | (self._ends > at)

    def last(self) -> list[tuple[int, int, int]]:
        """Return (thread, process, GPU) of the last choice of each thread."""
        last = np.flatnonzero(np.append(self._tids[1:] != self._tids[:-1], len(self._tids) > 0))
        last = last[self._kept[last]]
        columns = (self._tids[last], self._pids[last], self._devices[last])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def named(self) -> list[tuple[int, int]]:
        """Return (process, GPU), each once."""
        pairs = np.unique(self._pids[self._kept] << 8 | self._devices[self._kept])
        return [(pair >> 8, pair & 0xFF) for pair in pairs.tolist()]


def _uses(names: list[str]) -> npt.NDArray[np.uint8]:
    """Return the use of memory by the number of a function."""
    return np.array([*(_use_of(name) for name in names), 0], np.uint8)


def _use_of(name: str) -> int:
    if name not in api.OP_OF:
        return 0
    row = api.BY_OP[api.OP_OF[name]]
    return _SET if row.role == Role.SET_DEVICE else USES.index(row.memory)
