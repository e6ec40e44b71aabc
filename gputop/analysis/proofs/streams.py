"""The GPU of each call: by the device its thread chose, and the process's mapping to NVML's indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gputop.analysis.evidence.api_classes import Role, Trait
from gputop.analysis.evidence.columns import (
    FOREVER,
    Identities,
    Ints,
    Mask,
    lean,
    subtract,
    union,
    unique_runs,
)
from gputop.analysis.evidence.evidence import Column, Columns, Evidence
from gputop.engine.gpus.gpu_of import BY_NVML, Attribution, Device, UnknownGpuError, Usage, visible_devices
from gputop.engine.gpus.nvml_rows import devices, of_all_hosts, usage
from probes.samples import ProcessData, listed_gpus
from probes.source import Sample

_BEFORE = 0xFF  # an unseen choice, most often from before the attach; CUDA counts to 63


class Devices:
    """Numbers the GPUs that calls work on; two processes share a number only when they provably share a GPU.

    Attributes:
        of_calls: The number for each row of ``evidence.calls``.
        labels: Name of each number.
        index: NVML's index of each number, -1 where unknown.
        unsure: For each row of ``evidence.calls`` whether its thread's choice of a GPU may be missing, in a
            process on several GPUs: a record was lost since its last choice, or it chose before the attach.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._gpus = _gpus(evidence)
        self._uses: dict[int, tuple[int, ...]] = {}
        self._listed: Attribution | None = None
        self._numbers: dict[tuple[str, int, int], int] = {}
        self.labels: list[str] = []
        self.index: list[int] = []
        calls = evidence.calls
        chosen = self._chosen(calls)
        self.of_calls: Ints = np.zeros(len(calls), np.int64)
        pids = calls["pid"].astype(np.int64)
        pairs, _first, where = unique_runs((pids << 8) | chosen)
        several, counts = np.unique(pairs >> 8, return_counts=True)
        self._one_choice = frozenset(several[counts == 1].tolist())
        numbers = [self._number(int(pair) >> 8, int(pair) & 0xFF) for pair in pairs]
        self.of_calls = lean(np.array(numbers, np.int64)[where] if numbers else self.of_calls)
        self.unsure = self._unsure(calls, several[counts > 1])
        self.unsure |= (chosen == _BEFORE) & np.isin(pids, [pid for pid in several if self._several(pid)])
        self.unsure = lean(self.unsure)
        self._single = {pid: self._number(pid, self._first(pid)) for pid in several.tolist()}

    def number(self, index: int) -> int:
        """Return the number of a GPU by NVML's index."""
        return self._known(("gpu", index, 0), f"GPU {index}", index)

    def may_work_on(self, number: int) -> set[int]:
        """Return processes that chose before the attach, possibly this GPU."""
        index = self.index[number]
        found = {pid: self._used(pid) for pid in self._single if self._first(pid) and self._several(pid)}
        return {pid for pid, used in found.items() if index in used or not used}

    def of(self, calls: Columns) -> Ints:
        """Return the GPU of calls outside ``evidence.calls``: that of their thread's call before."""
        evidence = self._evidence
        outer, row = evidence.calls, evidence.threads.row(calls["tid"])
        if not len(outer) or not len(calls):
            return np.zeros(len(calls), np.int64)
        begins = evidence.key(outer["row"], outer["begin"])
        place = np.maximum(np.searchsorted(begins, evidence.key(row, calls["begin"]), side="right") - 1, 0)
        same = outer["row"][place] == row
        first = np.array([self._single.get(pid, 0) for pid in calls["pid"].tolist()], np.int64)
        return np.where(same, self.of_calls[place], first)

    def _chosen(self, calls: Columns) -> Ints:
        """The device ordinal that each call's thread had chosen."""
        last = self._last_choice(calls)
        chosen: Ints = np.zeros(len(calls), np.int64)
        facts = self._evidence.facts.processes
        if late := [pid for pid in facts if self._first(pid)]:
            chosen[np.isin(calls["pid"], late)] = _BEFORE
        rows = np.flatnonzero(last >= 0)  # few programs choose
        chosen[rows] = (calls["aux"][last[rows]] & np.uint64(0xFF)).astype(np.int64)
        return chosen

    def _last_choice(self, calls: Columns) -> Ints:
        """The row of each call's thread's last choice of a GPU, -1 for none."""
        sets = (self._evidence.role(calls) == Role.SET_DEVICE) & (calls["ret"] == 0)
        if not sets.any():
            return np.full(len(calls), -1, np.int64)
        last = np.maximum.accumulate(np.where(sets, np.arange(len(calls)), -1))
        same = (last >= 0) & (calls["row"][np.maximum(last, 0)] == calls["row"])
        return np.where(same, last, -1)

    def _unsure(self, calls: Columns, several: Ints) -> Mask:
        """See ``unsure``; ``several``: processes on several GPUs."""
        begin, end = self._evidence.lost
        if self._evidence.choices_kept:
            begin, end = subtract((begin, end), self._evidence.unkept)
        unsure: Mask = np.zeros(len(calls), np.bool_)
        if not len(end) or not len(several):
            return unsure
        last = self._last_choice(calls)
        chosen = np.where(last >= 0, calls["end"][np.maximum(last, 0)].astype(np.int64), -FOREVER)
        # the first loss that was over only after the choice
        place = np.searchsorted(end, chosen, side="right")
        lost = np.append(begin, FOREVER)[place] < calls["begin"].astype(np.int64)
        return lost & np.isin(calls["pid"].astype(np.int64), several)

    def _first(self, pid: int) -> int:
        """The device of a thread without a recorded choice."""
        facts = self._facts(pid)
        unseen = facts.get("cuda_devices_missed") is True or facts.get("cuda_devices_hidden") is True
        return _BEFORE if unseen else 0

    def _facts(self, pid: int) -> ProcessData:
        return self._evidence.facts.processes.get(pid, {})

    def _number(self, pid: int, ordinal: int) -> int:
        facts = self._facts(pid)
        index = -1 if ordinal == _BEFORE else self._physical(facts, ordinal)
        listed = self._by_nvml(pid) if index >= 0 else ()
        if listed and index not in listed:  # os.environ["CUDA_VISIBLE_DEVICES"] is not in /proc/PID/environ
            index = -1
        if index < 0 and (ordinal == _BEFORE or pid in self._one_choice):
            used = self._used(pid) if ordinal == _BEFORE else self._by_nvml(pid)
            index = used[0] if len(used) == 1 else -1
        if index >= 0:
            return self.number(index)
        device = "an unknown device" if ordinal == _BEFORE else f"device {ordinal}"
        return self._known(("process", pid, ordinal), f"{device} of process {pid}", index)

    def _several(self, pid: int) -> bool:
        """True if a process may work on several GPUs."""
        return pid not in self._one_choice or len(self._used(pid)) > 1

    def _used(self, pid: int) -> tuple[int, ...]:
        """NVML's indices of the GPUs that a process may use: those where NVML lists it, else all it sees."""
        if pid not in self._uses:
            try:
                used = self._by_nvml(pid) or tuple(visible_devices(self._facts(pid), self._gpus))
            except UnknownGpuError:
                used = ()
            self._uses[pid] = used
        return self._uses[pid]

    def _by_nvml(self, pid: int) -> tuple[int, ...]:
        """The GPUs on which NVML lists a process."""
        if self._listed is None:
            self._listed = Attribution(_usage(self._evidence), self._gpus, self._evidence.facts.processes)
        use = self._listed.of(pid, {})
        return use.gpus or () if use.source == BY_NVML else ()

    def _known(self, key: tuple[str, int, int], label: str, index: int) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.labels)
            self.labels.append(label)
            self.index.append(index)
        return self._numbers[key]

    def _physical(self, facts: ProcessData, ordinal: int) -> int:
        try:
            visible = visible_devices(facts, self._gpus)
        except UnknownGpuError:
            return -1
        return visible[ordinal] if ordinal < len(visible) else -1


def _gpus(evidence: Evidence) -> list[Device]:
    newest: Sample | None = None
    for sample in evidence.gpus:
        if listed_gpus(sample):
            newest = of_all_hosts(newest, sample)
    return devices(newest)


def _usage(evidence: Evidence) -> Usage:
    """The GPUs on which NVML lists each process; without partitioned ones, whose parts it does not name."""
    found: Usage = {}
    for sample in evidence.gpus:
        cut = {int(row.get("index", 0)) for row in listed_gpus(sample) if row.get("mig_enabled") is True}
        for pid, sizes in (usage(sample) or {}).items():
            whole = {index: size for index, size in sizes.items() if index not in cut}
            if whole:
                found.setdefault(pid, {}).update(whole)
    return found


# The stream of each call; a stream's GPU, kind and captures.

LEGACY, PER_THREAD = 0, 2  # handles of the default streams; 1 is another name of the legacy one
CROWD = 1  # no stream's handle: stands for all streams on a GPU of a process with too many of them
NON_BLOCKING = 1  # cudaStreamNonBlocking
_NOT_READY = 600
# a process has some 70 (PyTorch's pools) per GPU; each is compared with all others, so a forged file with a
# million of them would need hours
MOST_STREAMS = 16384


class Streams:
    """All streams that received work, and their calls."""

    def __init__(self, evidence: Evidence, devices: Devices) -> None:
        self._evidence = evidence
        self._devices = devices
        calls, inner = evidence.calls, evidence.inner
        self._roles = roles = evidence.role(calls)
        # of ten million calls few do not enqueue
        self._rare = np.flatnonzero((calls["ret"] == 0) & ~calls["abandoned"] & (roles != Role.ENQUEUE))
        enqueues = ((roles == Role.ENQUEUE) | (roles == Role.COPY_SYNC)) & (
            (calls["ret"] == 0) | calls["abandoned"]
        )
        rows = np.flatnonzero(enqueues)
        rows = rows[~self.into_graphs(rows)]
        device, thread, handle = devices.of_calls[rows], calls["row"][rows], calls["stream"][rows]
        # of ten million operations few go to another stream than the one before: only those are named
        heads = np.flatnonzero(_changes(thread) | _changes(handle) | _changes(device))
        inner_device, inner_rows = devices.of(inner), np.arange(len(inner))
        named = zip(
            _names(calls, rows[heads], device[heads]), _names(inner, inner_rows, inner_device), strict=True
        )
        names = [np.concatenate(parts) for parts in named]
        self._known = Identities(*names)
        if len(self._known) > MOST_STREAMS:
            names = _crowds(names, self._known.number, np.concatenate([device[heads], inner_device]))
            self._known = Identities(*names)
        first = np.zeros(len(self._known), np.int64)
        first[self._known.number] = np.arange(len(self._known.number))  # any row says whose stream it is
        lengths = np.append(np.diff(np.append(heads, len(rows))), np.ones(len(inner), np.int64))
        number = np.repeat(self._known.number, lengths)
        self.pid = np.concatenate([calls["pid"][rows[heads]], inner["pid"]])[first].astype(np.int64)
        self.handle = names[1][first]
        if len(self) > MOST_STREAMS:
            raise ValueError(f"work for {len(self)} streams, where no machine has {MOST_STREAMS}")
        # enqueue_stream, enqueue_begin, enqueue_end, enqueue_row, enqueue_thread: one entry per operation;
        # ``row`` is -1 for operations of a group of collectives and for calls still under way
        self.enqueue_stream: Column = number
        self.enqueue_begin: Ints = np.concatenate([calls["begin"][rows], inner["begin"]])
        self.enqueue_end: Ints = np.concatenate([calls["end"][rows], inner["end"]])
        self.enqueue_row: Ints = np.concatenate([rows, np.full(len(inner), -1)])
        self.enqueue_thread: Ints = np.concatenate([thread, evidence.threads.row(inner["tid"])])
        self._add_open_calls()
        self.enqueue_thread = lean(self.enqueue_thread)
        self._sort()
        # device, pid, handle: of each stream
        self.device = self._device(np.concatenate([device, inner_device]))
        self.blocking = self._blocking()  # True if it is known to synchronise with the legacy default stream
        # for each process: when any of its streams was captured into a graph
        self.captures = self._captures()

    def __len__(self) -> int:
        return len(self.pid)

    # -- which stream -------------------------------------------------------------------------------

    def _device(self, every: Ints) -> Ints:
        """The GPU of each stream: where it was made last, else that of its last operation."""
        device = np.full(len(self), every[0] if len(every) else 0)
        if not len(every) or (every == every[0]).all():
            return device
        for stream in range(len(self)):
            own = self.operations(stream)
            device[stream] = every[own[own < len(every)][-1]]
        made = self.rows(Role.CREATE_STREAM)
        made = made[np.argsort(self._evidence.calls["end"][made], kind="stable")]
        number = self.number(made)
        device[number[number >= 0]] = self._devices.of_calls[made[number >= 0]]
        return device

    def number(self, rows: Ints) -> Ints:
        """Return the stream of each of these calls; -1 if it never received work."""
        return self._known.find(*_names(self._evidence.calls, rows, self._devices.of_calls[rows]))

    def rows(self, role: Role) -> Ints:
        """Return calls of a role, except ``ENQUEUE``, that succeeded and returned."""
        rows: Ints = self._rare[self._roles[self._rare] == role]
        return rows

    # -- what is known about streams ----------------------------------------------------------------

    def _add_open_calls(self) -> None:
        """Add calls that had not returned at the end: each may enqueue in any stream of its process."""
        table = self._evidence.open_calls
        roles = self._evidence.apis.role.take(table["op"], mode="clip")
        for call in table[(roles == Role.ENQUEUE) | (roles == Role.COPY_SYNC)]:
            own = np.flatnonzero(self.pid == int(call["pid"]))
            thread = int(self._evidence.threads.row(np.array([call["tid"]]))[0])
            self.enqueue_stream = np.append(self.enqueue_stream, own)
            self.enqueue_begin = np.append(self.enqueue_begin, np.full(len(own), int(call["begin"])))
            self.enqueue_end = np.append(self.enqueue_end, np.full(len(own), FOREVER))
            self.enqueue_row = np.append(self.enqueue_row, np.full(len(own), -1))
            self.enqueue_thread = np.append(self.enqueue_thread, np.full(len(own), thread))

    def _blocking(self) -> Column:
        """Streams that were always made without the non-blocking flag, and per-thread default streams."""
        calls = self._evidence.calls
        made = self.rows(Role.CREATE_STREAM)
        known: dict[tuple[int, int], bool] = {}
        flagged = (calls["aux"][made] & NON_BLOCKING) != 0
        for pid, handle, free in zip(
            calls["pid"][made].tolist(), calls["stream"][made].tolist(), flagged.tolist(), strict=True
        ):
            known[pid, handle] = known.get((pid, handle), True) and not free
        pairs = zip(self.pid.tolist(), self.handle.tolist(), strict=True)
        return np.array(
            [
                handle == PER_THREAD or (handle > PER_THREAD and known.get((pid, handle), False))
                for pid, handle in pairs
            ],
            np.bool_,
        )

    def into_graphs(self, rows: Ints) -> Mask:
        """True for operations put into a graph: on a stream between the begin and end of its capture."""
        calls = self._evidence.calls
        inside: Mask = np.zeros(len(rows), np.bool_)
        begins, ends = self.rows(Role.CAPTURE_BEGIN), self.rows(Role.CAPTURE_END)
        for first in begins.tolist():
            pid, stream = calls["pid"][first], calls["stream"][first]
            own = (calls["pid"][ends] == pid) & (calls["stream"][ends] == stream)
            later = ends[own & (calls["begin"][ends] > calls["end"][first])]
            if len(later):
                until = int(calls["begin"][later].min())
                here = (calls["pid"][rows] == pid) & (calls["stream"][rows] == stream)
                here &= (calls["begin"][rows] >= calls["end"][first]) & (calls["end"][rows] <= until)
                inside |= here
        return inside

    def _captures(self) -> dict[int, tuple[Ints, Ints]]:
        calls = self._evidence.calls
        begins, ends = self.rows(Role.CAPTURE_BEGIN), self.rows(Role.CAPTURE_END)
        rows = np.concatenate([begins, ends])
        opened: dict[tuple[int, int], int] = {}
        parts: dict[int, list[tuple[int, int]]] = {}
        for row in rows[np.argsort(calls["begin"][rows], kind="stable")].tolist():
            stream = int(calls["pid"][row]), int(calls["stream"][row])
            if self._roles[row] == Role.CAPTURE_BEGIN:
                opened[stream] = int(calls["begin"][row])
            else:
                since = opened.pop(stream, -FOREVER)
                parts.setdefault(stream[0], []).append((since, int(calls["end"][row])))
        for (pid, _handle), since in opened.items():
            parts.setdefault(pid, []).append((since, FOREVER))
        return {
            pid: union(np.array([one[0] for one in some]), np.array([one[1] for one in some]))
            for pid, some in parts.items()
        }

    def captured(self, rows: Ints) -> Mask:
        """True for calls that may have been put into a graph: made during any capture."""
        calls = self._evidence.calls
        result: Mask = np.zeros(len(rows), np.bool_)
        for pid, (begin, end) in self.captures.items():
            first = np.searchsorted(end, calls["begin"][rows], side="left")
            last = np.searchsorted(begin, calls["end"][rows], side="right")
            result |= (calls["pid"][rows] == pid) & (last > first)
        return result

    # -- the operations of streams ------------------------------------------------------------------

    def _sort(self) -> None:
        """Sort the operations of each stream by their return, and find waits for events and queries."""
        calls = self._evidence.calls
        # ten million: by stream with a sort of small numbers, then by end where they are not yet in order
        small = self.enqueue_stream.astype(np.uint16) if len(self) <= 1 << 16 else self.enqueue_stream
        self.enqueue_stream = small
        # as indices only; half the memory of ten million
        self._order = np.argsort(small, kind="stable").astype(np.int32 if len(small) < 1 << 31 else np.int64)
        self._first = np.append(0, np.cumsum(np.bincount(self.enqueue_stream, minlength=len(self))))
        for first, last in zip(self._first[:-1].tolist(), self._first[1:].tolist(), strict=True):
            own = self._order[first:last]
            end = self.enqueue_end[own]
            if (end[1:] < end[:-1]).any():
                self._order[first:last] = own[np.argsort(end, kind="stable")]
        self._wait_rows = self.rows(Role.WAIT)
        self._wait_stream = self.number(self._wait_rows)
        denied = (self._roles == Role.PROVE_STREAM) & (calls["ret"] == _NOT_READY)
        self._denied = np.flatnonzero(denied)
        self._denied_stream = self.number(self._denied)

    def operations(self, stream: int) -> Column:
        """Return a stream's operations, as indices into the ``enqueue_`` columns, by their return."""
        mine: Column = self._order[self._first[stream] : self._first[stream + 1]]
        return mine

    def work_of(self, streams: list[int]) -> tuple[Ints, Ints, Ints]:
        """Return (row, begin, latest end so far) of some streams' operations and event waits, by begin."""
        calls = self._evidence.calls
        own = np.concatenate([self.operations(stream) for stream in streams])
        waits = self._wait_rows[np.isin(self._wait_stream, streams)]
        rows = np.concatenate([self.enqueue_row[own], waits])
        begins = np.concatenate([self.enqueue_begin[own], calls["begin"][waits]])
        ends = np.concatenate([self.enqueue_end[own], calls["end"][waits]])
        order = np.argsort(begins, kind="stable")
        return rows[order], begins[order], np.maximum.accumulate(ends[order])

    def peers(self, stream: int) -> list[int]:
        """Return the streams that wait for the operations of this one, and it for theirs."""
        alike = (self.pid == self.pid[stream]) & (self.device == self.device[stream])
        if self.handle[stream] == LEGACY:
            return [int(peer) for peer in np.flatnonzero(alike & self.blocking)]
        alike &= self.blocking[stream]
        return [int(peer) for peer in np.flatnonzero(alike & (self.handle == LEGACY))]

    def is_of_one_gpu(self, stream: int) -> bool:
        """True if a wait for its GPU ends its work: the streams of a crowd may be on several GPUs."""
        return self.handle[stream] != CROWD or len(np.unique(self.device[self.pid == self.pid[stream]])) == 1

    def not_ready(self, stream: int) -> Ints:
        """Return the queries that found a stream at work."""
        rows: Ints = self._denied[self._denied_stream == stream]
        return rows

    def held(self) -> set[int]:
        """Return processes whose streams may wait for something other than their own GPU's work."""
        calls = self._evidence.calls
        pids = set(np.unique(calls["pid"][self._evidence.apis.has(calls["op"], Trait.HOLDS)]).tolist())
        for pid in np.unique(calls["pid"][self._wait_rows]).tolist():
            if len(np.unique(self.device[self.pid == pid])) > 1:
                pids.add(pid)
        return pids


def _names(calls: Columns, rows: Ints, device: Ints) -> tuple[Column, Column, Column, Column]:
    """The identity of each call's stream; a default stream is one per GPU, or per thread.

    A created stream belongs to one GPU, whichever is current when a call enqueues in it.
    """
    handle = calls["stream"][rows]
    handle = np.where(handle == 1, np.uint64(LEGACY), handle)
    thread = np.where(handle == PER_THREAD, calls["tid"][rows], 0)
    where = np.where(handle > PER_THREAD, 0, device + 1)
    return calls["pid"][rows], handle, thread, where


def _crowds(names: Sequence[Column], number: Ints, device: Ints) -> list[Column]:
    """Names with one stream per GPU for the processes that have most, so that a forged file hides no others.

    No call names such a stream: its work ends where the process waits for the whole GPU, or ends.
    """
    pid, handle, thread, where = names
    _, first = np.unique(number, return_index=True)
    pids, counts = np.unique(pid[first], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    left = len(first) - np.cumsum(counts[order])
    crowded = np.isin(pid, pids[order][: int(np.argmax(left <= MOST_STREAMS // 2)) + 1])
    return [
        pid,
        np.where(crowded, np.uint64(CROWD), handle),
        np.where(crowded, 0, thread),
        np.where(crowded, device + 1, where),
    ]


def _changes(column: Column) -> Mask:
    """True where a column differs from the row before."""
    result: Mask = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=result[1:])
    return result


class Unseen:
    """When each GPU is free of work of lost records, on streams that no other record names.

    Args:
        evidence: The recorded evidence.
        devices: The GPU of each call.
        streams: The calls that wait for a whole GPU.
    """

    def __init__(self, evidence: Evidence, devices: Devices, streams: Streams) -> None:
        self._evidence, self._devices = evidence, devices
        self._lost_until: Ints = evidence.lost[1]
        roles = evidence.role(evidence.calls)
        acts = (roles != Role.OTHER) & (roles != Role.SET_DEVICE)
        self._unsure: Ints = np.flatnonzero(devices.unsure & acts)
        doubtful = len(self._lost_until) or len(self._unsure)
        self._waits = streams.rows(Role.PROVE_DEVICE) if doubtful else np.zeros(0, np.int64)
        self._waits = self._waits[~devices.unsure[self._waits]]

    def excluded(self, device: int, at: Ints, until: Ints) -> Mask:
        """True where no such work can be on a GPU from each of these moments up to another."""
        free: Mask = np.ones(len(at), np.bool_)
        if not len(self._lost_until) and not len(self._unsure):
            return free
        missing = np.insert(self._lost_until, 0, -FOREVER)[
            np.searchsorted(self._lost_until, at, side="right")
        ]
        calls, of_calls = self._evidence.calls, self._devices.of_calls
        pids = set(np.unique(calls["pid"][of_calls == device]).tolist())
        for pid in sorted(pids | self._devices.may_work_on(device)):
            unsure, within = self._unsure_until(pid, at, until)
            lost = np.maximum(missing, unsure)
            waits = self._waits[(calls["pid"][self._waits] == pid) & (of_calls[self._waits] == device)]
            waits = waits[np.argsort(calls["begin"][waits], kind="stable")]
            ends = np.append(np.minimum.accumulate(calls["end"][waits][::-1])[::-1], FOREVER)
            waited = ends[np.searchsorted(calls["begin"][waits], lost, side="left")] <= at
            gone = self._evidence.ended.get(pid, FOREVER) <= at
            free &= (waited & ~within) | gone | (lost <= born_ns(self._evidence, pid))
        return free

    def _unsure_until(self, pid: int, at: Ints, until: Ints) -> tuple[Ints, Mask]:
        """(end of a process's last unsure call before each moment, whether one begins before ``until``)."""
        calls = self._evidence.calls
        rows = self._unsure[calls["pid"][self._unsure] == np.uint32(pid)]
        begin, end = np.sort(calls["begin"][rows]), np.sort(calls["end"][rows])
        before = np.searchsorted(end, at, side="right")
        last = np.append(np.int64(-FOREVER), end)[before]
        return last, np.searchsorted(begin, until, side="left") > before


def born_ns(evidence: Evidence, pid: int) -> int:
    """Return when a process began; -FOREVER where that was before the recording."""
    threads = evidence.threads
    born = threads.known[threads.pid == pid] if pid in evidence.complete else threads.known[:0]
    return int(born.min()) if len(born) else -FOREVER


# Page-locked host memory whose allocation was recorded.

_KNOWN_ADDRESSES = 4096  # a program that page-locks more ranges than this reuses few of them


class HostRanges:
    """Page-locked ranges per process, with their lifetimes."""

    def __init__(self, evidence: Evidence) -> None:
        calls = evidence.calls
        roles = evidence.role(calls)
        events = np.flatnonzero(
            ((roles == Role.HOST_RANGE) | (roles == Role.HOST_FREE)) & (calls["ret"] == 0)
        )
        events = events[np.argsort(calls["end"][events], kind="stable")]
        self._complete = evidence.complete
        self._ranges: dict[int, list[list[int]]] = {}
        for row in events.tolist():
            self._consume(calls, row, bool(roles[row] == Role.HOST_RANGE))

    def _consume(self, calls: Columns, row: int, begins: bool) -> None:
        ranges = self._ranges.setdefault(int(calls["pid"][row]), [])
        address = int(calls["aux"][row])
        if begins:
            end = min(address + max(int(calls["bytes"][row]), 0), (1 << 64) - 1)
            ranges.append([address, end, int(calls["end"][row]), FOREVER])
            return
        for known in reversed(ranges):
            if known[0] == address and known[3] == FOREVER:
                known[3] = int(calls["begin"][row])
                return

    def pinned(self, pid: Column, address: Column, time: Column) -> Column:
        """True where an address was page-locked then, by a recorded allocation."""
        result = np.zeros(len(pid), np.bool_)
        for number in np.unique(pid).tolist():
            ranges = np.array(self._ranges.get(int(number), ()), np.uint64).reshape(-1, 4)
            if not len(ranges):
                continue
            mine = np.flatnonzero(pid == number)
            places, where = np.unique(address[mine], return_inverse=True)
            if len(places) > _KNOWN_ADDRESSES:
                result[mine] = _inside(ranges, address[mine], time[mine])
                continue
            for place, at in enumerate(places.tolist()):
                held = ranges[(ranges[:, 0] <= at) & (ranges[:, 1] > at)]
                rows = mine[where.reshape(-1) == place] if len(held) else mine[:0]
                for begin, end in held[:, 2:].astype(np.int64).tolist():
                    result[rows] |= (time[rows] >= begin) & (time[rows] < end)
        return result

    def certain(self, pid: int) -> bool:
        """True if memory without a recorded page lock is pageable for certain."""
        return pid in self._complete


def _inside(ranges: Column, address: Column, time: Ints) -> Column:
    """As ``pinned``, range by range: for very many addresses."""
    result = np.zeros(len(address), np.bool_)
    for low, high, begin, end in ranges.tolist():
        result |= (address >= low) & (address < high) & (time >= int(begin)) & (time < int(end))
    return result
