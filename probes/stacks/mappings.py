"""Which file's code was at an address of a process, at a time: the process may have ended since.

The kernel reports mappings as they happen (mmap_events.py), with their time. So a stack means the newest
mapping before its time, also after an exec and where one library took another's place. A process that ran
before, or whose mappings were not heard of, is looked up in its own list; that counts only while its loader
has mapped and unmapped nothing since the stack's time, as the kernel's generation shows. Nothing is guessed:
an address in neither is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from probes.code import interpreter
from probes.files import maps
from probes.files.mmap_events import Mapped

_MOST_PROCESSES = 4096
_MOST_MAPPINGS = 4096  # of a process
_MOST_ANCESTORS = 16
_MOST_ANSWERS = 16384  # that are kept of a process
_MOST_EXECS = 16  # likewise
_MOST_OTHERS = 8192  # mappings of processes that may never be needed
# mappings and answers of all processes, some 50 MB: forged ones must not fill the memory
MOST_KEPT = 1 << 17
_LOOK_AFTER = 4096  # more of them are counted

State = tuple[int, int]  # serial and generation, as in layout.NATIVE


@dataclass(frozen=True, slots=True)
class Moment:
    """When a process was at an address, and as which program."""

    pid: int
    time_ns: int
    state: State


@dataclass(slots=True)
class _Process:
    heard: list[Mapped] = field(default_factory=list)
    execs: list[int] = field(default_factory=list)  # when it became another program
    newest_ns: int = 0
    memo: dict[tuple[State, int], Mapped | None] = field(default_factory=dict)  # after ``newest_ns``
    parent: tuple[int, int] | None = None  # and when it was forked
    read: list[Mapped] = field(default_factory=list)
    read_state: State | None = None
    python: tuple[State, bool] | None = None

    @property
    def weight(self) -> int:
        """How many things are kept of it."""
        return len(self.heard) + len(self.read) + len(self.memo)


class Mappings:
    """The executable mappings of processes; ``heard`` belongs to any thread, all else to the reader's.

    Args:
        state: The kernel's current state of a process; None for none.
    """

    def __init__(self, state: Callable[[int], State | None]) -> None:
        self._state = state
        self._processes: dict[int, _Process] = {}
        self._others: dict[int, list[Mapped | int]] = {}  # by process, the one longest unheard of first
        self._of_others = 0  # how many things that are
        self._missed = (0, 0)
        self._added = 0  # since the weights were read
        self._lock = threading.Lock()

    @property
    def processes(self) -> list[int]:
        return list(self._processes)

    def heard(
        self, found: Iterable[Mapped], execs: Iterable[tuple[int, int]], watched: Callable[[int], bool]
    ) -> None:
        """Consumes mappings, and (pid, time) of processes that became other programs.

        Args:
            found: Mapped files.
            execs: Processes that became other programs.
            watched: True of processes with likely stacks; of others only the newest mappings are kept.
        """
        with self._lock:
            by_pid: dict[int, list[Mapped | int]] = {}
            for pid, time_ns in execs:
                by_pid.setdefault(pid, []).append(time_ns)
            for mapping in found:
                by_pid.setdefault(mapping.pid, []).append(mapping)
            for pid, items in by_pid.items():
                if pid in self._processes or watched(pid):
                    self._add(self._process(pid), items)
                else:
                    before = self._others.pop(pid, [])
                    self._others[pid] = (before + items)[-_MOST_MAPPINGS:]
                    self._of_others += len(self._others[pid]) - len(before)
            while self._of_others > _MOST_OTHERS:
                self._of_others -= len(self._others.pop(next(iter(self._others))))

    def _add(self, process: _Process, items: Iterable[Mapped | int]) -> None:
        for item in items:
            if isinstance(item, int):
                process.execs = sorted([*process.execs, item])[-_MOST_EXECS:]
                process.newest_ns = max(process.newest_ns, item)
            else:
                process.heard.append(item)
                process.newest_ns = max(process.newest_ns, item.time_ns)
                self._grown(1)
        process.memo.clear()
        if len(process.heard) > _MOST_MAPPINGS:
            del process.heard[: _MOST_MAPPINGS // 4]

    def _grown(self, count: int) -> None:
        """More is kept: when it is too much, the processes that have most of it lose their older half."""
        self._added += count
        if self._added < _LOOK_AFTER:
            return
        self._added = 0
        left = sum(process.weight for process in self._processes.values())
        for process in sorted(self._processes.values(), key=_weight, reverse=True):
            if left <= MOST_KEPT:
                return
            left -= process.weight
            process.memo.clear()
            process.read, process.read_state = [], None  # read again when it is needed
            del process.heard[: len(process.heard) // 2]
            left += process.weight

    def missed(self, since_ns: int, until_ns: int) -> None:
        """Between these times something may have been mapped that was not heard of."""
        with self._lock:
            if self._missed[1]:  # also between two such times: rather nothing than something wrong
                since_ns, until_ns = min(self._missed[0], since_ns), max(self._missed[1], until_ns)
            self._missed = since_ns, until_ns
            for process in self._processes.values():
                process.memo.clear()

    def forked(self, child: int, parent: int, time_ns: int) -> None:
        """A process has come that has the mappings of another one."""
        with self._lock:
            process = self._process(child)
            # the number may have been another process's
            process.heard = [mapping for mapping in process.heard if mapping.time_ns >= time_ns]
            process.execs = [when for when in process.execs if when >= time_ns]
            process.memo.clear()
            process.parent = parent, time_ns

    def forget(self, pid: int) -> None:
        with self._lock:
            self._processes.pop(pid, None)

    def find(self, moment: Moment, address: int) -> Mapped | None:
        """The mapping that held an address; None when that is not known."""
        with self._lock:
            process = self._process(moment.pid)
            late = moment.time_ns >= process.newest_ns
            key = moment.state, address
            if late and key in process.memo:
                return process.memo[key]
            found = self._heard_of(moment.pid, moment.time_ns, address) or self._read(
                process, moment, address
            )
            if late:
                if len(process.memo) >= _MOST_ANSWERS:
                    process.memo.clear()
                process.memo[key] = found
                self._grown(1)
            return found

    def has_interpreter(self, moment: Moment) -> bool:
        """True if one of its files has the name of a Python."""
        with self._lock:
            process = self._process(moment.pid)
            if process.python is None or process.python[0] != moment.state:
                process.python = moment.state, self._holds_interpreter(moment.pid, moment.time_ns)
            return process.python[1]

    def _holds_interpreter(self, pid: int, time_ns: int) -> bool:
        """By all that was ever mapped there, and is: once a Python, it may be one."""
        for _ in range(_MOST_ANCESTORS):
            process = self._process(pid)
            begun = _last(process.execs, time_ns)
            if any(_is_interpreter(mapping) for mapping in process.heard if mapping.time_ns >= begun):
                return True
            if begun:
                return False
            if process.parent is None:
                return any(map(_is_interpreter, maps.executable(pid)))
            pid, time_ns = process.parent[0], min(process.parent[1], time_ns)
        return False

    def _process(self, pid: int) -> _Process:
        found = self._processes.get(pid)
        if found is None:
            while len(self._processes) >= _MOST_PROCESSES:
                del self._processes[next(iter(self._processes))]
            found = self._processes[pid] = _Process()
            if heard := self._others.get(pid):
                self._add(found, heard)
        return found

    def _heard_of(self, pid: int, time_ns: int, address: int) -> Mapped | None:
        """The mapping by reported ones of the process, or before its birth of its parent."""
        since, until = self._missed
        oldest = until + 1 if until and time_ns >= since else 0
        for _ in range(_MOST_ANCESTORS):
            process = self._process(pid)
            best: Mapped | None = None
            begun = _last(process.execs, time_ns)
            for mapping in process.heard:
                if (
                    mapping.span[0] <= address < mapping.span[1]
                    and max(oldest, begun) <= mapping.time_ns <= time_ns
                ):
                    best = mapping if best is None or mapping.time_ns >= best.time_ns else best
            if best is not None or begun or process.parent is None:
                return best
            pid, time_ns = process.parent[0], min(process.parent[1], time_ns)
        return None

    def _read(self, process: _Process, moment: Moment, address: int) -> Mapped | None:
        """By its own list, if nothing has changed since the moment."""
        if process.read_state != moment.state:
            if self._state(moment.pid) != moment.state:
                return None
            read = maps.executable(moment.pid)
            if self._state(moment.pid) != moment.state:
                return None
            process.read, process.read_state = read, moment.state
            self._grown(len(read))
        else:
            read = process.read
        for mapping in read:
            if mapping.span[0] <= address < mapping.span[1]:
                return mapping
        return None


def _weight(process: _Process) -> int:
    return process.weight


def _last(times: list[int], until_ns: int) -> int:
    """The last one of sorted times that is not later; 0 without any."""
    return max((time_ns for time_ns in times if time_ns <= until_ns), default=0)


def _is_interpreter(mapping: Mapped) -> bool:
    return interpreter.may_be(mapping.path.removesuffix(" (deleted)").rpartition("/")[2])
