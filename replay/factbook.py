"""What is known at a moment of a session, as the samples that would say it: for what begins in the middle."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from probes.source import APIS, CLIENT, FILES, FRAMES, NAMES, NOTE, PROBLEM, PROCESS, Sample

_NOTES: Final = 32  # readers show fewer
_ROWS: Final = 10_000  # of names or files in one sample, which is bounded
_STACKS: Final = 200  # the same of Python stacks
_MOST_STACKS: Final = 100_000
# of ended processes, threads' names and files: whoever makes more has the oldest forgotten
_MOST_ENDED: Final = 4096
_MOST_ROWS: Final = 65_536
_MOST_PROBLEMS: Final = 256


class FactBook:
    """Takes facts in; ``samples`` are as few as say the same."""

    def __init__(self) -> None:
        """Start without facts."""
        self._processes: dict[int, dict[str, Any]] = {}
        self._clients: dict[int, Sample] = {}
        self._names: dict[int, tuple[int, str]] = {}
        self._files: dict[tuple[int, int], str] = {}
        self._stacks: dict[int, tuple[int, Any]] = {}
        self._apis: Sample | None = None
        self._problems: dict[str, Sample] = {}
        self._notes: deque[Sample] = deque(maxlen=_NOTES)
        self._ended: dict[int, None] = {}  # processes, in the order of their ends

    def take(self, sample: Sample) -> None:
        """Take a sample in; kinds that are no facts are ignored."""
        data = sample.data
        if sample.kind == PROCESS:
            self._take_process(data)
        elif sample.kind == CLIENT:
            self._clients[data["pid"]] = sample
        elif sample.kind == NAMES:
            for tid, pid, name in zip(data["tid"], data["pid"], data["name"], strict=True):
                self._names[tid] = (pid, name)
            _shorten(self._names)
        elif sample.kind == FILES:
            for pid, fd, what in zip(data["pid"], data["fd"], data["what"], strict=True):
                self._files[pid, fd] = what
            _shorten(self._files)
        elif sample.kind == FRAMES:
            for pid, stack, frames in zip(data["pid"], data["stack"], data["frames"], strict=True):
                if len(self._stacks) < _MOST_STACKS:
                    self._stacks[stack] = (pid, frames)
        elif sample.kind == APIS:
            self._apis = sample
        elif sample.kind == NOTE:
            self._notes.append(sample)
        elif sample.kind == PROBLEM:
            # a problem about the same thing replaces the one before; one without words ends it
            self._problems[str(data.get("about", "") or data.get("text", ""))] = sample
            self._shorten_problems()

    def _take_process(self, data: dict[str, Any]) -> None:
        known = self._processes.get(data["pid"])
        if known and known.get("exited_ns") is not None and data.get("exited_ns", known) is None:
            known = None  # the number was given to a new process
        merged = {**(known or {}), **data}
        if known and "seen_ns" in known:
            merged["seen_ns"] = known["seen_ns"]
        self._processes[data["pid"]] = merged
        self._ended.pop(data["pid"], None)
        if merged.get("exited_ns") is not None:
            self._ended[data["pid"]] = None
            if len(self._ended) > 2 * _MOST_ENDED:
                self._forget()

    def _shorten_problems(self) -> None:
        """Drops from the middle: the first ones say what does not work at all, the last ones are news."""
        names = list(self._problems) if len(self._problems) > 2 * _MOST_PROBLEMS else []
        for name in names[_MOST_PROBLEMS // 2 : -_MOST_PROBLEMS // 2]:
            del self._problems[name]

    def _forget(self) -> None:
        """Drops the processes that ended first, and what was told of them."""
        gone = set(list(self._ended)[:-_MOST_ENDED])
        for pid in gone:
            del self._ended[pid], self._processes[pid]
        self._names = {tid: row for tid, row in self._names.items() if row[0] not in gone}
        self._files = {key: what for key, what in self._files.items() if key[0] not in gone}

    def absorb(self, later: FactBook) -> None:
        """Take in what was told after these facts."""
        for data in later._processes.values():
            self._take_process(data)
        self._clients.update(later._clients)
        self._names.update(later._names)
        self._files.update(later._files)
        _shorten(self._names)
        _shorten(self._files)
        for stack, frames in later._stacks.items():
            if len(self._stacks) < _MOST_STACKS:
                self._stacks[stack] = frames
        self._apis = later._apis or self._apis
        self._problems.update(later._problems)
        self._shorten_problems()
        self._notes.extend(later._notes)

    def samples(self, time_ns: int) -> list[Sample]:
        """The facts.

        Args:
            time_ns: The moment that they are told at.
        """
        rows = [Sample(PROCESS, time_ns, dict(data)) for data in self._processes.values()]
        names = [(tid, pid, name) for tid, (pid, name) in self._names.items()]
        files = [(pid, fd, what) for (pid, fd), what in self._files.items()]
        stacks = [(pid, stack, frames) for stack, (pid, frames) in self._stacks.items()]
        return [
            *([self._apis] if self._apis is not None else []),
            *rows,
            *self._clients.values(),
            *_tables(NAMES, time_ns, ("tid", "pid", "name"), names),
            *_tables(FILES, time_ns, ("pid", "fd", "what"), files),
            *_tables(FRAMES, time_ns, ("pid", "stack", "frames"), stacks, _STACKS),
            *(sample for sample in self._problems.values() if sample.data.get("text")),
            *self._notes,
        ]


def _shorten(rows: dict[Any, Any]) -> None:
    """Drops the oldest rows when there are twice as many as are kept."""
    if len(rows) > 2 * _MOST_ROWS:
        for key in list(rows)[:-_MOST_ROWS]:
            del rows[key]


def _tables(
    kind: str, time_ns: int, columns: tuple[str, ...], rows: list[tuple[Any, ...]], most: int = _ROWS
) -> list[Sample]:
    return [
        Sample(kind, time_ns, dict(zip(columns, map(list, zip(*part, strict=True)), strict=True)))
        for part in (rows[start : start + most] for start in range(0, len(rows), most))
    ]
