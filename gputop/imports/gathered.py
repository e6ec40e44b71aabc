"""Gathers a trace of any size: calls, GPU work, thread activity."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gputop.errors import GputopError
from gputop.imports.spool import Spool
from probes.activities import FIELDS, TEXTS
from probes.schema import MAX_SHAPES, NOT_REQUESTED

FIRST_STACK: Final = 1 << 32  # numbers of stacks are multiples of it; lower ones are reasons for having none
TIDS: Final = 1 << 22  # numbers of threads and processes on Linux are below it
_MOST_TEXTS: Final = 1 << 20
_MOST_DETAILS: Final = 1 << 17
_MOST_FUNCTIONS: Final = 1000  # a recording's table of functions is limited
_LONGEST: Final = 4000  # characters of a name
_OTHERS: Final = "other functions"

CALL_COLUMNS: Final = (
    "begin",
    "end",
    "pid",
    "tid",
    "name",
    "correlation",
    "ret",
    "bytes",
    "direction",
    "stream",
    "aux",
    "stack",
    "shape",
    "handle",  # the program's handle of the stream; 0: unknown
    "nested",
    "outer",  # begin of the outermost call around it
    "around",  # function of that call
)
FRAME_COLUMNS: Final = ("begin", "end", "tid", "kind", "name")  # from which stacks are built
ACTIVITY_COLUMNS: Final = (*FIELDS, *TEXTS)
# GPU work of a call, or facts of a call (``what`` is 0)
WORK_COLUMNS: Final = (*ACTIVITY_COLUMNS, "correlation", "event", "group")
SWITCH_COLUMNS: Final = (
    "begin",
    "end",
    "pid",
    "tid",
    "runnable",
    "cpu",
    "queue_cpu",
    "waker_pid",
    "waker_tid",
    "next_pid",
    "next_tid",
    "flags",
    "state",
    "syscall",
    "stack",
)
PLACE_COLUMNS: Final = ("time", "tid", "stack")
_FIELD: Final = {name: place for place, name in enumerate(WORK_COLUMNS)}
_NO_WORK: Final = [0 if name in ("shape", "stack", "group", *TEXTS) else -1 for name in WORK_COLUMNS]
_NO_ACTIVITY: Final = _NO_WORK[: len(ACTIVITY_COLUMNS)]
_CALL: Final = {name: place for place, name in enumerate(CALL_COLUMNS)}
_NO_CALL: Final = [0] * len(CALL_COLUMNS)
_NO_CALL[_CALL["correlation"]] = _NO_CALL[_CALL["stream"]] = -1
_NO_CALL[_CALL["stack"]] = NOT_REQUESTED


class ImportFileError(GputopError):
    """The file is no trace that can be imported, or is damaged."""


@dataclass(slots=True)
class GatheredTrace:
    """Content of a trace; times are ns of the source's clock."""

    source: str  # its tool: ``ingero``, ``kineto``, ``nsys``, ``wprof``
    folder: str | None = None  # for temporary files; None: the system's
    realtime_ns: int | None = None  # offset of its clock to the epoch; None: unknown
    processes: dict[int, dict[str, Any]] = field(default_factory=dict)  # facts by number, ``name`` among them
    threads: dict[int, tuple[int, str]] = field(default_factory=dict)  # (process, name) by thread
    # the same of threads without records of their own, which woke others or used their CPU
    strangers: dict[int, tuple[int, str]] = field(default_factory=dict)
    # frames by number, the innermost first: (file, line, function)
    stacks: dict[int, list[tuple[str, int, str]]] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)  # facts of GPUs, ``index`` among them
    # ranks by process and number of the group
    communicators: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    whole_job: int = 0  # the group of all ranks; 0: unknown
    unproved: str = ""  # why calls prove nothing about an idle GPU; "": they do
    header: dict[str, Any] = field(default_factory=dict)  # further fields of the session file's header
    # events that the source counted but did not store, by kind
    lost: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # limits of this file, in sentences
    problems: list[str] = field(default_factory=list)  # faults in the file
    contents: str = ""  # contents of a file with nothing to import, in words
    # calls, frames, activities, work, switches, places: the rows (``CALL_COLUMNS`` and so on)
    calls: Spool = field(init=False)
    frames: Spool = field(init=False)
    activities: Spool = field(init=False)
    work: Spool = field(init=False)
    switches: Spool = field(init=False)
    places: Spool = field(init=False)
    texts: dict[str, int] = field(default_factory=lambda: {"": 0})
    functions: dict[str, int] = field(default_factory=dict)
    shapes: dict[tuple[int, ...], int] = field(default_factory=dict)
    _details: int = 0
    _tids: dict[tuple[int, int], int] = field(default_factory=dict)
    _pid_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.calls = Spool(CALL_COLUMNS, self.folder, ("pid", "tid"))
        self.frames = Spool(FRAME_COLUMNS, self.folder)
        self.activities = Spool(ACTIVITY_COLUMNS, self.folder, ("pid", "tid", "device", "what"))
        self.work = Spool(WORK_COLUMNS, self.folder, ("pid", "device"))
        self.switches = Spool(SWITCH_COLUMNS, self.folder, ("pid", "tid"))
        self.places = Spool(PLACE_COLUMNS, self.folder)

    # -- rows -----------------------------------------------------------------------------------------

    def call(self, begin: int, end: int, pid: int, tid: int, name: str, **known: int) -> None:
        """Add a call; ``known`` are columns of ``CALL_COLUMNS``."""
        row = _NO_CALL.copy()
        row[:5] = begin, end if end > begin else begin, pid, tid, self.function(name)
        for column, value in known.items():
            row[_CALL[column]] = value
        self.calls.add(row)

    def activity(
        self, what: str, begin: int, end: int, name: str = "", detail: str = "", /, **known: int
    ) -> None:
        """Add an activity measured beside the calls; ``known`` are columns of activities."""
        self.activities.add(self._row(_NO_ACTIVITY.copy(), what, begin, end, name, detail, known))

    def add_work(
        self, what: str, begin: int, end: int, name: str = "", detail: str = "", /, **known: int
    ) -> None:
        """Add GPU work or a wait of a call; ``known`` are columns of ``WORK_COLUMNS``.

        Args:
            what: Kind of the activity; "": only facts of the call with that correlation.
            begin, end, name, detail, known: Its values.
        """
        self.work.add(self._row(_NO_WORK.copy(), what, begin, end, name, detail, known))

    def _row(
        self, row: list[int], what: str, begin: int, end: int, name: str, detail: str, known: dict[str, int]
    ) -> list[int]:
        row[0], row[1] = begin, end if end > begin else begin
        for column, value in known.items():
            row[_FIELD[column]] = value
        row[_FIELD["what"]], row[_FIELD["name"]] = self.text(what), self.text(name)
        if detail:
            row[_FIELD["detail"]] = self.detail(detail)
        return row

    def frame(self, kind: int, begin: int, end: int, tid: int, name: str) -> None:
        """Add a frame, from which stacks of calls are built."""
        self.frames.add((begin, end, tid, kind, self.text(name)))

    def settle(self) -> None:
        """Write rows to disk if they are many; to be called regularly."""
        for spool in (self.calls, self.frames, self.activities, self.work, self.switches, self.places):
            spool.settle()

    # -- numbers --------------------------------------------------------------------------------------

    def text(self, text: str) -> int:
        number = self.texts.get(text)
        if number is None:
            if len(self.texts) >= _MOST_TEXTS:
                text = "more names than are kept"
            number = self.texts.setdefault(text[:_LONGEST], len(self.texts))
        return number

    def detail(self, text: str) -> int:
        """Return the number of a detail text; 0 if there are too many."""
        number = self.texts.get(text)
        if number is None:
            self._details += 1
            number = self.text(text) if self._details <= _MOST_DETAILS else 0
        return number

    def function(self, name: str) -> int:
        number = self.functions.get(name)
        if number is None:
            name = name if len(self.functions) < _MOST_FUNCTIONS else _OTHERS
            number = self.functions.setdefault(name, len(self.functions))
        return number

    def shape(self, sizes: Sequence[int]) -> int:
        """Return the number of a launch's grid, block and shared memory; 0 if none is left."""
        key = tuple(sizes)
        if key not in self.shapes and len(self.shapes) < MAX_SHAPES - 1:
            self.shapes[key] = len(self.shapes) + 1
        return self.shapes.get(key, 0)

    def thread(self, pid: int, tid: int) -> int:
        """Return a unique number for a thread, which is Linux's if valid."""
        number = self._tids.get((pid, tid))
        if number is None:
            number = tid
            while not 0 <= number < TIDS or self._pid_of.get(number, pid) != pid:
                number = TIDS - 1 - len(self._tids) % (TIDS // 2) if not 0 <= number < TIDS else number - 1
            self._tids[pid, tid] = number
            self._pid_of[number] = pid
        return number

    def communicator(self, pid: int, name: str, members: Sequence[int]) -> int:
        """Return the number of a group of ranks, the same in all of them.

        Args:
            pid: The process; -1: the only one of the trace.
            name: The framework's name of the group.
            members: Its ranks, by their numbers in the job.
        """
        words = f"{name} {list(members)}".encode()
        number = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "big") >> 1 or 1
        self.communicators.setdefault((pid, number), tuple(members))
        return number


def gpu_facts(index: int, name: str = "", uuid: str = "", memory_bytes: int | None = None) -> dict[str, Any]:
    """Return a GPU as NVML's samples list it, as far as known."""
    facts = {"index": index, "name": name, "uuid": uuid, "lost": "", "unavailable": {}, "processes": []}
    return facts if memory_bytes is None else {**facts, "memory_total_bytes": memory_bytes}
