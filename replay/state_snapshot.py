"""The state at a moment of a session, as samples that restore it: for readers that begin in the middle."""

from __future__ import annotations

from typing import Any, Final, cast

from probes.known import Known, shorten
from probes.samples import process_data, sample_data, text_of
from probes.shapes import Shapes
from probes.source import FILES, FRAMES, NAMES, PROCESS, SHAPES, Sample

_ROWS: Final = 10_000  # of names or files in one sample, which is bounded
_STACKS: Final = 200  # the same of Python stacks
MOST_STACKS: Final = 100_000  # beyond them, those of processes that ended go, of the first ones first
# stacks of processes that ended so long ago go where there are more than a few: no window is longer
_STACKS_NS: Final = 120_000_000_000
_FEW_STACKS: Final = 4096
MOST_ENDED: Final = 1024  # processes: beyond it the oldest are forgotten


class FactBook:
    """Consumes facts; ``samples`` are the fewest that hold the same."""

    def __init__(self) -> None:
        self._known = Known()
        self._files: dict[tuple[int, int], str] = {}
        self._stacks: dict[int, dict[int, Any]] = {}  # of each process, by number
        self._count = 0  # of stacks
        self._shapes = Shapes()
        self._ended: dict[int, int] = {}  # processes and when they ended, in that order
        self._over: dict[int, None] = {}  # those of them that still have their stacks

    def consume(self, sample: Sample) -> None:
        """Consume a sample; kinds that are no facts are ignored."""
        if (process := process_data(sample)) is not None:
            self._known.merge_process(process)
            self._note_end(process["pid"])
        elif (files := sample_data(sample, FILES)) is not None:
            rows = zip(files.get("pid", ()), files.get("fd", ()), files.get("what", ()), strict=False)
            self._files.update(((pid, fd), what) for pid, fd, what in rows)
            shorten(self._files)
        elif (stacks := sample_data(sample, FRAMES)) is not None:
            columns = (
                stacks.get("pid", ()),
                stacks.get("stack", ()),
                stacks.get("frames", ()),
            )
            for pid, stack, frames in zip(*columns, strict=False):
                self._consume_stack(pid, stack, frames)
        elif (shapes := sample_data(sample, SHAPES)) is not None:
            self._shapes.consume(shapes)
        else:
            self._known.consume(sample)

    def _note_end(self, pid: int) -> None:
        self._ended.pop(pid, None)
        self._over.pop(pid, None)
        ended_ns = self._known.processes[pid].get("exited_ns")
        if isinstance(ended_ns, int):  # a file may hold anything
            self._ended[pid], self._over[pid] = ended_ns, None
            old_ns = ended_ns - _STACKS_NS
            while self._count > _FEW_STACKS and self._ended[first := next(iter(self._over))] < old_ns:
                self._drop_stacks(first)
            if len(self._ended) > 2 * MOST_ENDED:
                self._forget()

    def _consume_stack(self, pid: int, stack: int, frames: Any) -> None:
        if stack not in self._stacks.get(pid, ()):
            while self._count >= MOST_STACKS and self._over:
                self._drop_stacks(next(iter(self._over)))
            if self._count >= MOST_STACKS:
                return
            self._count += 1
            if pid in self._ended:  # reported after its end
                self._over[pid] = None
        self._stacks.setdefault(pid, {})[stack] = frames

    def _drop_stacks(self, pid: int) -> None:
        self._over.pop(pid, None)
        self._count -= len(self._stacks.pop(pid, ()))

    def _forget(self) -> None:
        """Drops the processes that ended first, and their facts."""
        gone = set(list(self._ended)[:-MOST_ENDED])
        for pid in gone:
            del self._ended[pid]
            self._drop_stacks(pid)
        self._known.forget(gone)
        self._files = {key: what for key, what in self._files.items() if key[0] not in gone}

    def absorb(self, later: FactBook) -> None:
        """Merges the facts recorded after these."""
        self._known.absorb(later._known)
        for pid in later._known.processes:
            self._note_end(pid)
        self._files.update(later._files)
        shorten(self._files)
        for pid, own in later._stacks.items():
            for stack, frames in own.items():
                self._consume_stack(pid, stack, frames)
        self._shapes.absorb(later._shapes)

    def samples(self, time_ns: int) -> list[Sample]:
        """The facts."""
        # each as it was merged, which is never changed: its holder sees whether it is still the same
        rows = [
            Sample(PROCESS, time_ns, cast(dict[str, Any], data)) for data in self._known.processes.values()
        ]
        names = [(tid, pid, name) for tid, (pid, name) in self._known.names.items()]
        files = [(pid, fd, what) for (pid, fd), what in self._files.items()]
        stacks = [(pid, stack, frames) for pid, own in self._stacks.items() for stack, frames in own.items()]
        return [
            *([self._known.apis] if self._known.apis is not None else []),
            *rows,
            *self._known.clients.values(),
            *_tables(NAMES, time_ns, ("tid", "pid", "name"), names),
            *_tables(FILES, time_ns, ("pid", "fd", "what"), files),
            *_tables(FRAMES, time_ns, ("pid", "stack", "frames"), stacks, _STACKS),
            *_tables(SHAPES, time_ns, ("shape", "sizes"), self._shapes.rows()),
            *(sample for sample in self._known.problems.values() if text_of(sample)),
            *self._known.notes,
        ]


def _tables(
    kind: str, time_ns: int, columns: tuple[str, ...], rows: list[tuple[Any, ...]], most: int = _ROWS
) -> list[Sample]:
    return [
        Sample(kind, time_ns, dict(zip(columns, map(list, zip(*part, strict=True)), strict=True)))
        for part in (rows[start : start + most] for start in range(0, len(rows), most))
    ]
