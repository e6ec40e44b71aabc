"""The watched processes: facts and names of processes and threads, gathered as their records pass by."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from probes.proc import procfs
from probes.proc.belonging import KEYS
from probes.proc.late_attach import Latecomers
from probes.proc.used_devices import DeviceCalls
from probes.samples import ProcessData, merged
from probes.schema import ALIASED, ExitFlag, Kind, Records, select
from probes.source import NAMES, NOTE, PROCESS, Sample

# an enum is numpy's slow path, and looks its names up by itself: a quarter of the cost of a fork here
_RARE = np.uint8(Kind.FORK)
_OTHERS = np.array([Kind.COMMUNICATOR, Kind.SHAPE], np.uint8)  # rare, too, and without names
_FORKED, _EXECED, _EXITED, _JOINED, _NAMED = map(int, (Kind.FORK, Kind.EXEC, Kind.EXIT, Kind.JOIN, Kind.NAME))
_OOM = int(Kind.OOM)
_CALLED, _GROUP_DEAD = int(ExitFlag.CALLED), int(ExitFlag.GROUP_DEAD)
_RENAMES_PER_MARK = 64  # thread names read again at each mark, in turn
# names that are remembered so that they are reported once; a dropped one is only reported again
MOST_NAMES = 16_384
_COLUMNS = ("kind", "pid", "tid", "t_end", "flags", "ret", "next_pid", "comm")
# inherited from the parent until it becomes another program
_INHERITED = (
    "command", "user", "uid", "namespace_pid", "container", "cuda_visible_devices", "cuda_device_order",
    *KEYS,
)  # fmt: skip
# kept when it becomes another program
_OUTLASTING = ("parent_pid", "start_ns", "user", "uid", "namespace_pid", "container", *KEYS)


class Roster:
    """Turns births, execs, exits and first mentions into process and names samples."""

    def __init__(self) -> None:
        self.births = 0  # count of processes and programs that have begun, of those that are watched
        self.ended: dict[int, int] = {}  # processes that have ended, with parents; their consumer clears it
        self._seen_from_ns = 0.0
        self._alive: dict[int, dict[str, Any]] = {}  # pid -> its facts
        self.names: dict[int, str] = {}  # tid -> name
        self._fresh_names: dict[int, tuple[int, str]] = {}  # tid -> (pid, name), not yet reported
        self._turn = 0
        self._added: list[int] = []
        self._callers: set[int] = set()  # processes a thread of which called CUDA and ended
        self._past_callers: dict[int, None] = {}  # ended processes that called CUDA, the oldest first
        self._late = Latecomers()
        self._since_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._complete: set[int] = set()  # processes whose CUDA calls were all seen
        self._devices = DeviceCalls(self._complete.__contains__)
        self._gone: set[int] = set()  # ended in the current batch: /proc has nothing of them

    def add(self, pid: int) -> None:
        """A process that is watched by request."""
        self._added.append(pid)
        self._late.add(pid)

    def alive(self) -> list[int]:
        """Processes that were seen and have not exited, those of ``add`` included."""
        return [*dict.fromkeys([*self._added, *self._alive])]

    def notice(self, records: Records, seen_from_ns: float = 0) -> Iterator[Sample]:
        """The samples that follow from a batch: births and ends in their order, then devices used.

        Of a process that began before ``seen_from_ns`` calls may be missing, although it is new.
        """
        self._seen_from_ns = seen_from_ns
        rare = records["kind"] >= _RARE
        if rare.any():
            rare &= np.isin(records["kind"], _OTHERS, invert=True)
            yield from _one_a_process(self._notice_rare(records, rare))
        for pid, keys in self._devices.notice(records):
            yield Sample(PROCESS, int(records["t_end"][-1]), {"pid": pid, "watched": True, **keys})

    def _notice_rare(self, records: Records, rare: npt.NDArray[np.bool_]) -> Iterator[Sample]:
        rows = select(records, rare).view(ALIASED)
        ended = (rows["kind"] == _EXITED) & (rows["flags"] & _GROUP_DEAD != 0)
        self._gone = set(rows["pid"][ended].tolist())
        for row in rows[[*_COLUMNS]].tolist():
            kind, pid, tid, now, flags, code, maker, comm = row
            if kind == _EXITED:
                self.names.pop(tid, None)
                if flags & _CALLED:
                    self._callers.add(pid)
                if flags & _GROUP_DEAD:
                    yield from self._ended(pid, now, code)
                continue
            if kind == _OOM:
                yield Sample(PROCESS, now, {"pid": pid, "watched": True, "oom_ns": now})
                yield Sample(NOTE, now, {"text": f"the kernel ends process {pid}: out of memory", "pid": pid})
                continue
            name = comm.decode(errors="replace")
            self._name(pid, tid, name)
            if kind == _EXECED or (kind != _NAMED and pid not in self._alive):
                if kind == _JOINED:
                    self._late.add(pid)
                if pid in self._past_callers and pid not in self._alive:
                    del self._past_callers[pid]
                    text = (
                        f"process number {pid} went to a new process: totals by number hold the calls of both"
                    )
                    yield Sample(NOTE, now, {"text": text})
                yield self._began(pid, name, now, kind, maker)

    def _began(self, pid: int, name: str, now: int, kind: int, maker: int) -> Sample:
        facts = self._forked(pid, name, now, maker) if kind == _FORKED else _facts_at(pid, now)
        if facts is None:  # it ended before it was read: facts of its records, and those that an exec keeps
            before = self._alive.get(pid, {})
            left = {key: before[key] for key in _OUTLASTING if key in before}
            facts = {"parent_pid": 0, "start_ns": now, **left, "pid": pid, "name": name, "command": ""}
        self.births += 1
        self._alive[pid] = facts
        # one that joins with its first call, and began after gputop, has made no call before
        begun = kind in (_FORKED, _EXECED) or int(facts["start_ns"]) > self._since_boot_ns
        if begun and now >= self._seen_from_ns:
            self._complete.add(pid)
        if self._devices.forget(pid):  # another program in the same process
            facts |= {"cuda_devices": [], "cuda_devices_missed": False, "cuda_devices_hidden": False}
        self._devices.expect(pid)
        return Sample(PROCESS, now, {**facts, "watched": True, "seen_ns": now, "exited_ns": None})

    def _forked(self, pid: int, name: str, now: int, maker: int) -> dict[str, Any] | None:
        """The facts of a process that was just forked: its parent's, which are known, but for its start.

        A job may fork hundreds of times a second, and reading them all lasts ten times as long.
        """
        known = self._alive.get(maker)
        if known is None or "uid" not in known:
            return _facts_at(pid, now) or {"pid": pid, "parent_pid": maker, "name": name, "start_ns": now}
        start = procfs.start_of(pid) if pid not in self._gone else None
        if start is not None and start[1] > now:
            start = None
        return {
            "pid": pid,
            "parent_pid": maker if start is None else start[0],
            "name": name,
            "start_ns": now if start is None else start[1],
            **{key: known[key] for key in _INHERITED if key in known},
        }

    def _ended(self, pid: int, now: int, code: int) -> Iterator[Sample]:
        called = pid in self._callers
        self._callers.discard(pid)
        if called:
            self._past_callers[pid] = None
            if len(self._past_callers) > MOST_NAMES:
                del self._past_callers[next(iter(self._past_callers))]
        facts = self._alive.pop(pid, None)
        self.ended[pid] = int(facts["parent_pid"]) if facts is not None else 0
        if facts is not None:
            data = {"pid": pid, "watched": True, "exited_ns": now, "exit_code": code, "called": called}
            yield Sample(PROCESS, now, data)
        if pid in self._added:
            self._added.remove(pid)
        self._complete.discard(pid)
        self._devices.forget(pid)

    def _name(self, pid: int, tid: int, name: str) -> None:
        if self.names.get(tid) != name:
            # also those of processes that are not watched: their ends are not seen
            if len(self.names) >= MOST_NAMES:
                for old in list(self.names)[: MOST_NAMES // 2]:
                    del self.names[old]
            self.names[tid] = name
            self._fresh_names[tid] = (pid, name)

    def facts(self, states: npt.NDArray[np.void], mark_ns: int) -> Iterator[Sample]:
        """Names that are new or changed since the last mark; reads some threads from /proc in turn."""
        pids, tids = states["pid"].tolist(), states["tid"].tolist()
        self._reread(list(zip(pids, tids, strict=True)))
        living = set(pids)
        for pid in living:  # also those whose birth was lost
            self._devices.expect(pid)
        for pid in self._vanished(living):
            yield from self._ended(pid, mark_ns, 0)
        yield from self._late.samples(states, mark_ns)
        if self._fresh_names:
            fresh, self._fresh_names = self._fresh_names, {}
            yield Sample(
                NAMES,
                mark_ns,
                {
                    "tid": list(fresh),
                    "pid": [pid for pid, _ in fresh.values()],
                    "name": [name for _, name in fresh.values()],
                },
            )

    def _reread(self, threads: list[tuple[int, int]]) -> None:
        for pid, tid in threads[self._turn : self._turn + _RENAMES_PER_MARK]:
            name = procfs.thread_name(pid, tid)
            if name is not None:
                self._name(pid, tid, name)
        self._turn = self._turn + _RENAMES_PER_MARK if self._turn + _RENAMES_PER_MARK < len(threads) else 0

    def _vanished(self, known: Iterable[int]) -> list[int]:
        """Processes whose exit was not seen: lost, or of one that never ran since it is watched."""
        missing = {*self._alive, *self._added} - set(known)
        return [pid for pid in missing if not procfs.exists(pid)]


def _facts_at(pid: int, now: int) -> dict[str, Any] | None:
    """The facts of the process that had a pid at a time, as far as /proc has them."""
    facts = procfs.process_facts(pid)
    return None if facts is None or int(facts["start_ns"]) > now else facts


def _one_a_process(samples: Iterable[Sample]) -> Iterator[Sample]:
    """One sample for a batch's facts of a process: helpers begin and end by the hundred in a second.

    Each sample costs space in the file and work of its readers. A number that goes to a new process is not
    one process.
    """
    last: dict[int, Sample] = {}
    for sample in samples:
        if sample.kind != PROCESS:
            yield sample
            continue
        before = last.pop(sample.data["pid"], None)
        if before is not None and before.data.get("exited_ns") is not None:
            yield before
            before = None
        data = cast(ProcessData, sample.data)
        known = cast(ProcessData, before.data) if before is not None else None
        row = merged(known, data)
        if "seen_ns" in row and "start_ns" in row:  # /proc counts in ticks of the clock, records in ns
            row["start_ns"] = min(row["start_ns"], row["seen_ns"])
        last[data["pid"]] = Sample(PROCESS, sample.time_ns, {**row})
    yield from last.values()
