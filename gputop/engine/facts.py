"""Process metadata, thread names, API names, problems and notes, from samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.engine.calls.frameworks import TORCH_THREADS, Framework
from gputop.engine.calls.stack_table import Stacks
from gputop.engine.fork_state import apart
from gputop.engine.wallclock import WallClock
from probes.known import Known
from probes.proc.late_attach import merged
from probes.samples import ClientData, ProcessData, process_data, sample_data, text_of
from probes.shapes import Shapes
from probes.source import APIS, CLIENT, FRAMES, GPUS, MARK, SHAPES, Sample

EXITED_SHOWN = 32  # exited processes that stay listed, the newest ones
PASSING_NS = 1_000_000_000  # least lifetime of a listed process that ended without CUDA calls
_NOTES_SHOWN = 8
_KEPT_NS = 10_000_000_000  # longer than any window: an ended process that is not listed is in none then
MOST_ENDED = 2048  # ended within that time; 200 a second
SWEEP_AFTER = 256  # ended processes: the cost of a sweep grows with the number of known ones


class Facts:
    """Metadata from samples; only ``forget`` drops any: all facts before a mark may be consumed at once."""

    def __init__(self) -> None:
        self.stacks = Stacks()
        self.shapes = Shapes()
        self._known = Known()
        self._apis: list[tuple[str, str]] = []
        self._ended = 0  # reported since the last sweep
        self.clock: WallClock | None = None  # at the marks so far

    def copy(self) -> Facts:
        """Return an independent copy."""
        return apart(self, shared=("stacks", "shapes", "clock"))  # the meaning of their numbers never changes

    @property
    def processes(self) -> dict[int, ProcessData]:
        """The watched processes, by number."""
        return self._known.processes

    def consume(self, sample: Sample) -> None:
        """Consume a sample; other kinds are ignored."""
        if (process := process_data(sample)) is not None:
            self._ended += self._known.merge_process(process).get("exited_ns") is not None
            return
        self._known.consume(sample)
        if (frames := sample_data(sample, FRAMES)) is not None:
            self.stacks.consume(frames)
        elif (shapes := sample_data(sample, SHAPES)) is not None:
            self.shapes.consume(shapes)
        elif (apis := sample_data(sample, APIS)) is not None:
            self._apis = [(str(row[0]), str(row[1])) for row in apis.get("rows", ())]
        elif (mark := sample_data(sample, MARK)) is not None and (wall_ns := int(mark.get("wall_ns", 0))):
            ahead = wall_ns - sample.time_ns
            self.clock = (self.clock or WallClock(ahead, ahead)).seen(sample.time_ns, wall_ns)

    def of(self, pid: int) -> ClientData | None:
        """Return the metadata of a process, watched or only a user of a GPU; None if unknown."""
        sample = self._known.clients.get(pid)
        return self.processes.get(pid) or (None if sample is None else sample_data(sample, CLIENT))

    def forget(self, now_ns: int) -> None:
        """Drop processes that ended long before a moment and are listed nowhere, with their threads' names.

        The marks at which it is called make no visible difference.
        """
        if self._ended < SWEEP_AFTER:
            return
        self._ended = 0
        ended = [row for row in self.processes.values() if row.get("exited_ns") is not None]
        ended.sort(key=_exited)
        listed = [row["pid"] for row in ended if row.get("watched") and not _passing(row)][-EXITED_SHOWN:]
        fresh = {row["pid"] for row in ended[-MOST_ENDED:] if _exited(row) >= now_ns - _KEPT_NS}
        gone = {row["pid"] for row in ended} - fresh - {*listed}
        self._known.forget(gone)
        self.stacks.forget(gone)

    def api(self, op: int) -> tuple[str, str]:
        """Return (name, layer) of a row of the API table."""
        return self._apis[op] if 0 <= op < len(self._apis) else (f"function {op}", "unknown")

    def thread_name(self, tid: int, pid: int = 0) -> str:
        """Return a thread's name, else that of its process, else its number; the idle task is "idle"."""
        if tid == 0:
            return "idle"
        known = self._known.names.get(tid)
        return known[1] if known is not None else self._process_name(pid) or str(tid)

    def process_name(self, pid: int) -> str:
        """Return a process's name, else that of one of its threads, else its number."""
        return self._process_name(pid) or str(pid)

    def brief_name(self, tid: int, pid: int) -> str:
        """Return the name of a thread or its process by one look each; "" if unknown."""
        names = self._known.names
        known = names.get(tid) or names.get(pid)
        return known[1] if known is not None else str((self.of(pid) or {}).get("name", ""))

    def process_title(self, pid: int) -> str:
        """Return ``train.py (4242)``, or ``an unnamed process (4242)``."""
        return f"{self._process_name(pid) or 'an unnamed process'} ({pid})"

    def thread_title(self, tid: int, pid: int = 0) -> str:
        """Return the same of a thread."""
        name = self.thread_name(tid, pid)
        return f"{name if name != str(tid) else 'an unnamed thread'} ({tid})"

    def _process_name(self, pid: int) -> str:
        """The name of a process, else of its main thread, else of any thread; ""."""
        if not pid:
            return ""
        if name := (self.of(pid) or {}).get("name"):
            return str(name)
        names = self._known.names
        main = names.get(pid)
        if main is not None:
            return main[1]
        return next(names.of(pid), "")

    def frameworks(self, pid: int) -> frozenset[Framework]:
        """Return the frameworks of a process, by the files on its stacks and the names of its threads."""
        loaded = self.stacks.frameworks(pid)
        names = self._known.names.of(pid)
        if Framework.TORCH in loaded or not any(name.startswith(TORCH_THREADS) for name in names):
            return loaded
        return loaded | {Framework.TORCH}

    def watched(self) -> list[ProcessData]:
        """Return the processes to list: all that live, and the newest that ended."""
        rows = [row for row in self.processes.values() if row.get("watched") and not _passing(row)]
        ended = sorted((row for row in rows if row.get("exited_ns") is not None), key=_exited)
        dropped = {row["pid"] for row in ended[:-EXITED_SHOWN]} if len(ended) > EXITED_SHOWN else set()
        return [row for row in rows if row["pid"] not in dropped]

    def problems(self, gpus: Sample | None) -> tuple[str, ...]:
        """Return sentences about missing data."""
        data = sample_data(gpus, GPUS) if gpus is not None else None
        error = str((data or {}).get("error", ""))
        texts = [text_of(sample) for sample in self._known.problems.values()]
        return (*merged([*filter(None, texts)]), *((f"NVML: {error}",) if error else ()))

    def notes(self) -> tuple[str, ...]:
        """Return the newest notes, those about libraries last: each container may have its own."""
        notes = [*self._known.notes]
        newest = sorted(range(len(notes)), key=lambda row: ("layer" in notes[row].data, -row))
        return tuple(text_of(notes[row]) for row in sorted(newest[:_NOTES_SHOWN]))


def _passing(row: ProcessData) -> bool:
    """True for a helper of a wrapper or a build, which is not listed: it ended soon and never called CUDA."""
    if row.get("exited_ns") is None or row.get("called", True):
        return False
    return _exited(row) - int(row.get("seen_ns", 0)) < PASSING_NS


def _exited(row: ProcessData) -> int:
    return int(row["exited_ns"] or 0)


def began_ns(process: Mapping[str, Any], header: Mapping[str, Any]) -> int | None:
    """Return when a process began, ns of CLOCK_MONOTONIC, to a hundredth of a second; None where unknown.

    /proc counts it since the machine's boot, with suspend time.
    """
    begun, clock = process.get("start_ns"), header.get("clock", {})
    if begun is None or "boottime_ns" not in clock:
        return None
    return int(begun) - (int(clock["boottime_ns"]) - int(clock.get("monotonic_ns", 0)))


def lost_before(header: Mapping[str, Any]) -> dict[str, int]:
    """Return events by kind that were lost before a part of a session; empty for a whole one."""
    cut = header.get("cut")
    lost = cut.get("lost") if isinstance(cut, Mapping) else None
    return {str(kind): int(count) for kind, count in lost.items()} if isinstance(lost, Mapping) else {}
