"""Waits for the disk by file: sums by descriptor, with names from ``files`` samples.

A sample names the file of a descriptor at a mark. Sums must not depend on where a recording is cut, so they
hold no name but the time of the descriptor's last record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from gputop.documents.fields import Mark
from gputop.engine.accumulator import Part
from gputop.engine.fork_state import packed, unpacked
from gputop.engine.threads.offcpu_stats import WIDTH as STAYS_WIDTH
from gputop.engine.threads.offcpu_stats import Stays
from gputop.format import escape_text, format_ns
from probes.proc.syscalls import name, of_files
from probes.samples import FilesData, sample_data
from probes.schema import ALIASED, NO_SYSCALL, OffFlag, Records
from probes.source import FILES, Sample

# integers of a row: process, system call, its first argument, time of its record; count, sum, worst
WIDTH = 7
_MOST = 4096  # rows; further files are counted without a descriptor
_MOST_CHANGES = 16_384  # descriptors that are kept, the last ones
_NO_DESCRIPTOR = -1
_CHANGE_WIDTH = 3
_DISK_COUNT = 1 + [row.name for row in fields(Stays)].index("disk_count")  # in a row of ``StaySums``
_MOST_NAMES = 65_536
_LARGEST = 1 << 31  # descriptors are below it

Key = tuple[int, int, int, int]
_SHOWN = 10  # of a process in the text; JSON has all


_KNOWN = Mark(schema=str | None, make=lambda text: text or None)


@dataclass(frozen=True, slots=True)
class DiskWait:
    """Waits of a process for the disk, for one file in one system call; times in ns.

    Attributes:
        file: Its path; "" if none was reported, or the call has no descriptor.
        call: The system call; "" for a page fault: a mapped file, or swapped memory.
        count: Stays off the CPU.
        sum_ns, worst_ns: Blocked, without the run queue after it.
    """

    file: Annotated[str, _KNOWN]
    call: Annotated[str, _KNOWN]
    count: int
    sum_ns: int
    worst_ns: int


class FileNames:
    """Files of descriptors, with the time of each record."""

    def __init__(self) -> None:
        self._changes: dict[tuple[int, int], list[tuple[int, str]]] = {}
        self._count = 0

    def consume(self, time_ns: int, data: FilesData) -> None:
        """Consume the data of a sample; samples come in order of time."""
        rows = zip(data.get("pid", ()), data.get("fd", ()), data.get("what", ()), strict=False)
        for pid, descriptor, what in rows:
            if self._count < _MOST_NAMES:
                self._count += 1
                self._changes.setdefault((int(pid), int(descriptor)), []).append((time_ns, str(what)))

    def at(self, pid: int, descriptor: int, since_ns: int) -> str:
        """Return a descriptor's file at that time; for 0, before any record of it, its first file."""
        rows = self._changes.get((pid, descriptor), [])
        known = [what for time_ns, what in rows if time_ns == since_ns or not since_ns]
        return known[0] if known else ""


class DiskWaits(Part):
    """The sums.

    Attributes:
        known: False if a gputop without these sums reduced the records.
    """

    def __init__(self) -> None:
        self.known = True
        self._sums: dict[Key, tuple[int, int, int]] = {}
        self._changed: dict[tuple[int, int], int] = {}

    def add_offcpu(self, stays: Records) -> None:
        """Add OFFCPU records, counted as by ``StaySums``."""
        rows = stays.view(ALIASED)
        waits = OffFlag.IOWAIT | OffFlag.QUEUED | OffFlag.THROTTLED | OffFlag.BIRTH
        rows = rows[rows["flags"] & waits == OffFlag.IOWAIT]
        columns = (rows[column].tolist() for column in ("pid", "op", "argument", "duration", "runnable"))
        for pid, call, argument, duration, runnable in zip(*columns, strict=True):
            descriptor = argument if argument < _LARGEST else _NO_DESCRIPTOR
            blocked = max(duration - runnable, 0)
            self._add((pid, call, descriptor, self._changed.get((pid, descriptor), 0)), 1, blocked, blocked)

    def _add(self, key: Key, count: int, sum_ns: int, worst_ns: int) -> None:
        before = self._sums.get(key)
        if before is None and len(self._sums) >= _MOST:
            key = (key[0], key[1], _NO_DESCRIPTOR, 0)
            before = self._sums.get(key)
        if before is not None:
            count, sum_ns, worst_ns = count + before[0], sum_ns + before[1], max(worst_ns, before[2])
        self._sums[key] = count, sum_ns, worst_ns

    def add_sample(self, sample: Sample) -> None:
        """Remember descriptors with a new or first record."""
        if (data := sample_data(sample, FILES)) is not None:
            for pid, descriptor in zip(data.get("pid", ()), data.get("fd", ()), strict=False):
                self._remember((int(pid), int(descriptor)), sample.time_ns)

    def _remember(self, key: tuple[int, int], time_ns: int) -> None:
        self._changed.pop(key, None)
        if len(self._changed) >= _MOST_CHANGES:
            del self._changed[next(iter(self._changed))]
        self._changed[key] = time_ns

    def payload(self) -> dict[str, Any]:
        """Return ``disk`` (None: unknown), and ``files``: process, descriptor, time of its last record."""
        return {
            "disk": packed([(*key, *sums) for key, sums in self._sums.items()]) if self.known else None,
            "files": packed([(*key, time_ns) for key, time_ns in self._changed.items()]),
        }

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add the payload of the next stretch.

        Raises:
            ValueError: The data lack the files although there were waits for the disk.
        """
        if data.get("disk") is not None:
            for pid, call, descriptor, since_ns, *numbers in unpacked(data, "disk", WIDTH):
                since = since_ns or self._changed.get((pid, descriptor), 0)
                self._add((pid, call, descriptor, since), *numbers)
            for pid, descriptor, time_ns in unpacked(data, "files", _CHANGE_WIDTH):
                self._remember((pid, descriptor), time_ns)
        elif "disk" in data:
            self.known = False  # sums in place of records, by a gputop without these
        elif data.get("stays") and any(row[_DISK_COUNT] for row in unpacked(data, "stays", STAYS_WIDTH)):
            raise ValueError("these sums lack the files of waits for the disk")

    def finish(self, names: FileNames, machine: str) -> Mapping[int, tuple[DiskWait, ...]]:
        """Return the waits by process, longest sum first.

        Args:
            names: The files of descriptors.
            machine: The architecture of the system calls' numbers, as of ``uname -m``.
        """
        names_file = of_files(machine)
        found: dict[int, dict[tuple[str, str], DiskWait]] = {}
        for (pid, call, descriptor, since_ns), (count, sum_ns, worst_ns) in self._sums.items():
            what = names.at(pid, descriptor, since_ns) if names_file[call] and descriptor >= 0 else ""
            kind, _, path = what.partition(":")
            file = path if kind in ("file", "device") else what
            called = "" if call == NO_SYSCALL else name(call, machine) or f"system call {call}"
            rows = found.setdefault(pid, {})
            known = rows.get((file, called), DiskWait(file, called, 0, 0, 0))
            rows[file, called] = DiskWait(
                file, called, known.count + count, known.sum_ns + sum_ns, max(known.worst_ns, worst_ns)
            )
        return {
            pid: tuple(sorted(rows.values(), key=lambda row: (-row.sum_ns, row.file, row.call)))
            for pid, rows in (found if self.known else {}).items()
        }


def disk_waits_text(rows: tuple[DiskWait, ...]) -> list[str]:
    """Return the lines under "waited for disk", longest first."""
    shown = [
        f"    {row.count:>9}{format_ns(row.sum_ns):>8}{format_ns(row.worst_ns):>8}  "
        f"{row.call or 'page of memory':<15} {escape_text(row.file or '-')}"
        for row in rows[:_SHOWN]
    ]
    rest = rows[_SHOWN:]
    if rest:
        numbers = f"{sum(row.count for row in rest):>9}{format_ns(sum(row.sum_ns for row in rest)):>8}"
        shown.append(f"    {numbers}{'':8}  of {len(rest)} more")
    return [f"    {'COUNT':>9}{'SUM':>8}{'WORST':>8}  {'IN':<15} FILE", *shown] if shown else []
