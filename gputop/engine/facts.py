"""Who is who: process facts, thread names, API names, problems and notes, from samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any

from gputop.engine.apart import apart
from gputop.engine.lines import Stacks
from probes.source import APIS, CLIENT, FRAMES, NAMES, NOTE, PROBLEM, PROCESS, Sample

EXITED_SHOWN = 32  # exited processes that stay listed, the newest ones
PASSING_NS = 1_000_000_000  # an ended process without CUDA calls is listed if it lived this long
_NOTES_SHOWN = 8
# A window that names processes is shorter: an ended one that is not listed is nowhere to be seen then.
_KEPT_NS = 10_000_000_000
_MOST_ENDED = 2048  # ended within that time; 200 a second
_SWEEP_AFTER = 256  # processes ended: sweeping costs the more, the more are known
_MOST_NAMES = 65_536  # of threads; whoever makes more of them has the oldest called by number
_MOST_PROBLEMS = 256


class Facts:
    """Grows with each sample; forgets only in ``forget``, so all facts before a mark may be fed at once."""

    def __init__(self) -> None:
        self.stacks = Stacks()
        self.processes: dict[int, dict[str, Any]] = {}
        self.clients: dict[int, dict[str, Any]] = {}  # who uses a GPU and is not watched
        self._names: dict[int, str] = {}
        self._owners: dict[int, int] = {}
        self._apis: list[tuple[str, str]] = []
        self._problems: dict[str, str] = {}  # what it is about -> the sentence
        self._notes: deque[str] = deque(maxlen=_NOTES_SHOWN)
        self._ended = 0  # told since the last sweep

    def copy(self) -> Facts:
        """Facts that grow apart from these."""
        return apart(self, shared=("stacks",))  # what a stack's number stands for never changes

    def take(self, sample: Sample) -> None:
        """Takes a sample in; kinds that are not facts are ignored."""
        data = sample.data
        if sample.kind == PROCESS and isinstance(data.get("pid"), int):
            self._take_process(data)
        elif sample.kind == CLIENT and isinstance(data.get("pid"), int):
            self.clients[data["pid"]] = data
        elif sample.kind == NAMES:
            rows = zip(data.get("tid", ()), data.get("pid", ()), data.get("name", ()), strict=False)
            for tid, pid, name in rows:
                self._names[int(tid)] = str(name)
                self._owners[int(tid)] = int(pid)
            if len(self._names) > 2 * _MOST_NAMES:
                self._drop_names(set(list(self._names)[:-_MOST_NAMES]))
        elif sample.kind == FRAMES:
            self.stacks.take(data)
        elif sample.kind == APIS:
            self._apis = [(str(row[0]), str(row[1])) for row in data.get("rows", ())]
        elif sample.kind == PROBLEM:
            self._take_problem(str(data.get("text", "")), str(data.get("about", "")))
        elif sample.kind == NOTE:
            self._notes.append(str(data.get("text", "")))

    def _take_problem(self, text: str, about: str) -> None:
        """A problem about the same thing replaces the one before; one without words ends it."""
        key = about or text
        if text:
            self._problems[key] = text
            if len(self._problems) > _MOST_PROBLEMS:  # the first ones say what does not work at all
                del self._problems[next(islice(self._problems, _MOST_PROBLEMS // 2, None))]
        else:
            self._problems.pop(key, None)

    def _take_process(self, data: dict[str, Any]) -> None:
        pid = data["pid"]
        known = self.processes.get(pid)
        ended = known is not None and known.get("exited_ns") is not None
        if ended and data.get("exited_ns", known) is None:
            known = None  # the number was given to a new process
        merged = {**(known or {}), **data}
        if known is not None and "seen_ns" in known:
            merged["seen_ns"] = known["seen_ns"]
        self.processes[pid] = merged
        self._ended += merged.get("exited_ns") is not None

    def forget(self, now_ns: int) -> None:
        """Drops processes that ended long before a moment and are listed nowhere, and their threads' names.

        Where it is called at some marks only, all that can be seen is the same.
        """
        if self._ended < _SWEEP_AFTER:
            return
        self._ended = 0
        ended = [row for row in self.processes.values() if row.get("exited_ns") is not None]
        ended.sort(key=_exited)
        listed = [row["pid"] for row in ended if row.get("watched") and not _passing(row)][-EXITED_SHOWN:]
        fresh = {row["pid"] for row in ended[-_MOST_ENDED:] if _exited(row) >= now_ns - _KEPT_NS}
        gone = {row["pid"] for row in ended} - fresh - {*listed}
        for pid in gone:
            del self.processes[pid]
        self._drop_names({tid for tid, pid in self._owners.items() if pid in gone})

    def _drop_names(self, tids: set[int]) -> None:
        for tid in tids:
            del self._names[tid], self._owners[tid]

    def api(self, op: int) -> tuple[str, str]:
        """(name, layer) of a row of the API table."""
        return self._apis[op] if 0 <= op < len(self._apis) else (f"function {op}", "unknown")

    def thread_name(self, tid: int) -> str:
        """The thread's name; the idle task is "idle"."""
        return "idle" if tid == 0 else self._names.get(tid, str(tid))

    def process_name(self, pid: int) -> str:
        """The process's name, else that of its main thread."""
        name = self.processes.get(pid, {}).get("name")
        return str(name) if name else self.thread_name(pid)

    def watched(self) -> list[dict[str, Any]]:
        """Processes to list: all that live, and the newest that ended."""
        rows = [row for row in self.processes.values() if row.get("watched") and not _passing(row)]
        ended = sorted((row for row in rows if row.get("exited_ns") is not None), key=_exited)
        dropped = {row["pid"] for row in ended[:-EXITED_SHOWN]} if len(ended) > EXITED_SHOWN else set()
        return [row for row in rows if row["pid"] not in dropped]

    def problems(self, gpus: Sample | None) -> tuple[str, ...]:
        """Sentences about what cannot be observed."""
        error = str(gpus.data.get("error", "")) if gpus is not None else ""
        return (*self._problems.values(), *((f"NVML: {error}",) if error else ()))

    def notes(self) -> tuple[str, ...]:
        """The newest notes."""
        return tuple(self._notes)


def _passing(row: dict[str, Any]) -> bool:
    """A helper of a wrapper or a build: ended soon and never called CUDA. Nobody looks for it."""
    if row.get("exited_ns") is None or row.get("called", True):
        return False
    return _exited(row) - int(row.get("seen_ns", 0)) < PASSING_NS


def _exited(row: dict[str, Any]) -> int:
    return int(row["exited_ns"])


def lost_before(header: Mapping[str, Any]) -> dict[str, int]:
    """Events by kind that were lost before what begins in the middle of a session; empty for a whole one."""
    cut = header.get("cut")
    lost = cut.get("lost") if isinstance(cut, Mapping) else None
    return {str(kind): int(count) for kind, count in lost.items()} if isinstance(lost, Mapping) else {}
