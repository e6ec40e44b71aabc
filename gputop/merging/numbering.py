"""Renumbers a part for a merged recording: processes, CPUs, GPUs, stacks, times.

Processes of the first host keep their numbers; those of the second are 10,000,000 higher, and so on. GPUs of
the second host are 100 higher. Each part has CPUs of its own, so that waits meet occupants and losses are
found as in its own file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from gputop.analysis.evidence.gatherer import packed_columns, records_before
from gputop.errors import GputopError
from gputop.merging.clocks import Clock
from probes.activities import activity_rows, activity_sample
from probes.api import MAX_ROWS
from probes.samples import GpuData
from probes.schema import ALIASED, CallFlag, Kind, Records
from probes.source import (
    ACTIVITY,
    APIS,
    CARRIED,
    CLIENT,
    FAULTS,
    FILES,
    FRAMES,
    GPUS,
    NAMES,
    OPEN,
    PLACES,
    PROCESS,
    RESIDENT,
    SHAPES,
    Item,
    Sample,
)
from probes.stacks.stack_samples import is_kernel_number, kernel_address, kernel_number

PIDS_APART: Final = 10_000_000  # more than there are process numbers: 4,194,304
GPUS_APART: Final = 100
_CPUS_APART: Final = (1000, 100)  # by number of parts: CPU numbers have 16 bits
_STACK_MIX: Final = 0x9E3779B97F4A7C15 % 2**61  # the highest bits hold the kind of number
_RESERVED_STACKS: Final = 4  # numbers that are reasons for having no stack
_PID_KEYS: Final = ("pid", "parent_pid", "namespace_pid")


def most_parts() -> int:
    """Return the largest number of recordings in a merge."""
    return (1 << 16) // _CPUS_APART[-1]


@dataclass(frozen=True, slots=True)
class PartOffset:
    """The place of a part in the whole."""

    part: int  # its number, from 0 on
    parts: int  # number of parts
    host: int  # the number of its host, from 0 on
    clock: Clock  # conversion to the clock of the whole
    # asleep_ns, whole_asleep_ns: offsets of time since boot from its clock, and from the whole's
    asleep_ns: int = 0
    whole_asleep_ns: int = 0
    seen_since_ns: int = 0  # later begins were observed by its recorder (since boot, by the part's clock)
    unseen_ns: int = 0  # upper bound of earlier begins, by the whole's clock
    beside: tuple[GpuData, ...] = ()  # GPUs of its host in other parts, if each part lists only its own


class Numbering:
    """Renumbers items of a part."""

    def __init__(self, place: PartOffset, apis: Apis) -> None:
        self._place, self._apis = place, apis
        self._op = np.arange(1, dtype=np.uint16)
        self._apart = next((one for one in _CPUS_APART if place.parts * one <= 1 << 16), _CPUS_APART[-1])
        self._first: dict[int, int] = {}  # by CPU: the first number of its records, where the file was cut
        self._mix = place.part * _STACK_MIX % 2**61

    def pid(self, number: int) -> int:
        """Renumber a process or thread; 0 is none."""
        return number + self._place.host * PIDS_APART if number > 0 else number

    def time(self, ns: int) -> int:
        """Convert a moment; 0 is none."""
        return self._place.clock.at(ns) if ns > 0 else ns

    def stack(self, number: int) -> int:
        """Renumber a stack, since two recorders may use one number for different stacks."""
        if number < _RESERVED_STACKS or not self._mix:
            return number
        mixed = number ^ self._mix
        return mixed if mixed >= _RESERVED_STACKS else number

    def shape(self, number: int) -> int:
        """Renumber a launch shape; 0 is none."""
        apart = (1 << 32) // self._place.parts
        return number + self._place.part * apart if 0 < number < apart else 0

    def item(self, item: Item) -> Item | None:
        """Return the renumbered item; None if nothing of it is left."""
        return self._sample(item) if isinstance(item, Sample) else self.records(item)

    def records(self, records: Records, *, cut: bool = False) -> Records:
        """Return renumbered copies of records.

        Args:
            records: The records.
            cut: They begin in the middle of a session, so earlier ones are not missing.

        Raises:
            GputopError: A CPU's number is impossible.
        """
        if cut:
            records = self._from_one(records)
        place = self._place
        changed: Records = records.copy()
        rows = changed.view(ALIASED)
        kind = records["kind"]
        rows["t_end"] = place.clock.moved(rows["t_end"].astype(np.int64)).astype(np.uint64)
        calls = kind == np.uint8(Kind.CALL)
        if not np.array_equal(self._op, np.arange(len(self._op))):
            known = calls & (records["op"] < len(self._op))
            changed["op"][known] = self._op[records["op"][known]]
        if place.part:
            stacked = (calls | (kind == np.uint8(Kind.OFFCPU))) & (records["stack"] >= _RESERVED_STACKS)
            mixed = records["stack"] ^ np.uint64(self._mix)
            changed["stack"] = np.where(stacked & (mixed >= _RESERVED_STACKS), mixed, records["stack"])
        if place.part:
            launched = calls & ((records["flags"] & np.uint16(CallFlag.COUNTERS)) == 0)
            launched = (launched | (kind == np.uint8(Kind.SHAPE))) & (rows["shape"] > 0)
            rows["shape"][launched] = [self.shape(one) for one in rows["shape"][launched].tolist()]
        if place.parts > 1:
            self._move_cpus(rows, kind)
        if place.host:
            self._move_pids(rows, kind)
        return changed

    def _move_cpus(self, rows: Records, kind: Any) -> None:
        base = self._place.part * self._apart
        queued = np.isin(kind, [Kind.OFFCPU, Kind.MIGRATE])
        highest = max(int(rows["cpu"].max(initial=0)), int(rows["queue_cpu"][queued].max(initial=0)))
        if highest >= self._apart:
            raise GputopError(
                f"a record is of CPU {highest}, and of {self._place.parts} recordings each can have "
                f"{self._apart} CPUs: merge fewer at a time"
            )
        rows["cpu"] += np.uint16(base)
        rows["queue_cpu"][queued] += np.uint16(base)

    def _move_pids(self, rows: Records, kind: Any) -> None:
        add = np.uint32(self._place.host * PIDS_APART)
        off, fork = kind == np.uint8(Kind.OFFCPU), kind == np.uint8(Kind.FORK)
        every = np.ones(len(rows), np.bool_)
        for name, which in (
            ("pid", every),
            ("tid", every),
            ("waker_pid", off),
            ("waker_tid", off),
            ("next_pid", off | fork),
            ("next_tid", off | fork),
        ):
            moved = which & (rows[name] > 0)
            rows[name][moved] += add

    def _from_one(self, records: Records) -> Records:
        """Renumber records from 1 on, by CPU: earlier numbers would count as lost."""
        cpus, first = np.unique(records["cpu"], return_index=True)
        for cpu, row in zip(cpus.tolist(), first.tolist(), strict=True):
            self._first.setdefault(cpu, int(records["seq"][row]) - 1)
        changed: Records = records.copy()
        before = np.array([self._first[cpu] % 2**32 for cpu in cpus.tolist()], np.uint32)
        changed["seq"] -= before[np.searchsorted(cpus, records["cpu"])]
        return changed

    # -- samples --------------------------------------------------------------------------------------

    def _sample(self, sample: Sample) -> Sample | None:
        if columns := _COLUMNS.get(sample.kind):
            changes = {name: partial(change, self) for name, change in columns.items()}
            data: dict[str, Any] | None = self._columns(sample.data, **changes)
        else:
            change = _CHANGES.get(sample.kind)
            data = dict(sample.data) if change is None else change(self, sample.data)
        return None if data is None else Sample(sample.kind, self.time(sample.time_ns), data)

    def _columns(self, data: Mapping[str, Any], **changes: Callable[[int], int]) -> dict[str, Any]:
        """The data with some lists of numbers changed."""
        return {
            key: [changes[key](value) for value in values] if key in changes else values
            for key, values in data.items()
        }

    def _process(self, data: Mapping[str, Any]) -> dict[str, Any]:
        place = self._place
        changed = dict(data)
        for key in _PID_KEYS:
            if isinstance(data.get(key), int):
                changed[key] = self.pid(data[key])
        for key in ("seen_ns", "exited_ns", "oom_ns"):
            if isinstance(data.get(key), int):
                changed[key] = self.time(data[key])
        if isinstance(data.get("start_ns"), int) and place.parts > 1:
            start = place.clock.at(data["start_ns"] - place.asleep_ns) + place.whole_asleep_ns
            changed["start_ns"] = (
                start if data["start_ns"] > place.seen_since_ns else min(start, place.unseen_ns)
            )
        if place.parts > 1:
            changed["part"] = place.part
        return changed | ({"host": place.host} if place.host else {})

    def _open(self, data: Mapping[str, Any]) -> dict[str, Any]:
        base = self._place.part * self._apart if self._place.parts > 1 else 0
        return self._columns(
            data,
            pid=self.pid,
            tid=self.pid,
            off_since=self.time,
            queued_since=self.time,
            call_since=self.time,
            queue_cpu=lambda cpu: cpu + base,
            op=self.op,
        )

    def op(self, number: int) -> int:
        """Renumber a function; -1 is none."""
        return int(self._op[number]) if 0 <= number < len(self._op) else number

    def _frames(self, data: Mapping[str, Any]) -> dict[str, Any]:
        changed = self._columns(data, pid=self.pid, stack=self.stack)
        pairs = zip(data.get("pid", ()), data.get("stack", ()), strict=False)
        for row, (pid, number) in enumerate(pairs):
            if is_kernel_number(number):
                changed["stack"][row] = kernel_number(self.pid(pid), kernel_address(pid, number))
        return changed

    def _gpus(self, data: Mapping[str, Any]) -> dict[str, Any]:
        reported = [row for row in data.get("gpus") or () if isinstance(row, dict)]
        rows = [self._gpu(row) for row in (*reported, *self._place.beside)]
        rows.sort(key=lambda row: int(row["index"]))
        return {**data, "gpus": rows} | ({"host": self._place.host} if self._place.host else {})

    def _gpu(self, row: Mapping[str, Any]) -> dict[str, Any]:
        changed = dict(row)
        changed["index"] = self.gpu(int(row.get("index", 0)))
        if self._place.host:
            changed["host"] = self._place.host
        if isinstance(row.get("processes"), list):
            changed["processes"] = [[self.pid(int(pid)), used] for pid, used in row["processes"]]
        if isinstance(row.get("clients"), list):
            changed["clients"] = [
                {**one, "pid": self.pid(int(one["pid"]))} if isinstance(one, dict) and "pid" in one else one
                for one in row["clients"]
            ]
        if isinstance(row.get("process_utilization"), dict):
            changed["process_utilization"] = self._columns(row["process_utilization"], pid=self.pid)
        if isinstance(row.get("utilization_samples"), list):
            changed["utilization_samples"] = [
                [self.time(int(at)), share] for at, share in row["utilization_samples"]
            ]
        return changed

    def gpu(self, index: int) -> int:
        """Renumber a GPU of NVML; -1 is none."""
        return index + self._place.host * GPUS_APART if index >= 0 else index

    def _activity(self, data: Mapping[str, Any]) -> dict[str, Any]:
        rows, texts = activity_rows(data)
        moved = self._place.clock.moved
        rows["begin"], rows["end"] = moved(rows["begin"]), moved(rows["end"])
        rows["call_begin"] = np.where(rows["call_tid"] >= 0, moved(rows["call_begin"]), -1)
        for name, change in (
            ("pid", self.pid),
            ("tid", self.pid),
            ("call_tid", self.pid),
            ("device", self.gpu),
            ("shape", self.shape),
            ("stack", self.stack),
        ):
            different, place = np.unique(rows[name], return_inverse=True)
            rows[name] = np.array([change(int(one)) for one in different], np.int64)[place.reshape(-1)]
        return dict(activity_sample(rows, texts, 0).data)

    def _carried(self, data: Mapping[str, Any]) -> dict[str, Any]:
        records, complete = records_before(data)
        return {
            "complete": [self.pid(pid) for pid in sorted(complete)],
            "columns": packed_columns(self.records(records)),
        }

    def _api_rows(self, data: Mapping[str, Any]) -> dict[str, Any] | None:
        self._op = self._apis.numbers(data.get("rows") or ())
        return self._apis.payload()


class Apis:
    """The functions of all parts, whose tables may differ in order."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self._number: dict[tuple[str, ...], int] = {}
        self._written = 0

    def numbers(self, rows: Sequence[Sequence[Any]]) -> Any:
        """Return the number in the whole of each row of a part's table."""
        known = []
        for row in rows:
            key = tuple(str(text) for text in row)
            if key not in self._number:
                self._number[key] = len(self.rows)
                self.rows.append([*key])
            known.append(self._number[key])
        if len(self.rows) > MAX_ROWS:
            raise GputopError(
                f"these recordings know {len(self.rows)} functions together, more than {MAX_ROWS}: did "
                "gputop make them?"
            )
        return np.array(known, np.uint16)

    def payload(self) -> dict[str, Any] | None:
        """Return the table if it has grown since the last call."""
        if len(self.rows) == self._written:
            return None
        self._written = len(self.rows)
        return {"rows": [list(row) for row in self.rows]}


# kinds of samples that are lists of numbers
_COLUMNS: Final[dict[str, dict[str, Callable[[Numbering, int], int]]]] = {
    NAMES: {"tid": Numbering.pid, "pid": Numbering.pid},
    FAULTS: {"tid": Numbering.pid, "pid": Numbering.pid},
    FILES: {"pid": Numbering.pid},
    RESIDENT: {"pid": Numbering.pid},
    SHAPES: {"shape": Numbering.shape},
    PLACES: {
        "time": Numbering.time,
        "tid": Numbering.pid,
        "pid": Numbering.pid,
        "stack": Numbering.stack,
    },
}
_CHANGES: Final[dict[str, Callable[[Numbering, Mapping[str, Any]], dict[str, Any] | None]]] = {
    PROCESS: Numbering._process,
    CLIENT: Numbering._process,
    OPEN: Numbering._open,
    FRAMES: Numbering._frames,
    GPUS: Numbering._gpus,
    ACTIVITY: Numbering._activity,
    CARRIED: Numbering._carried,
    APIS: Numbering._api_rows,
}
