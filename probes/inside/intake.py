"""Reports of programs from inside, as activities on CLOCK_MONOTONIC, each joined with its call.

A kernel has the correlation of a call that CUPTI saw; that call lies within one that a probe saw, on the same
thread. So a kernel gets the begin of that one, by which explanations find it, with its line and its stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from probes import api
from probes.activities import (
    COPY,
    FILL,
    GRAPH,
    KERNEL,
    MOST_GPUS,
    TABLE,
    Table,
    activity_samples,
    unknown_rows,
)
from probes.api_semantics import Role
from probes.arrays import distinct
from probes.inside.messages import CLOCK, HEADER, RECORD, ROW, VERSION, InsideState, Message, What
from probes.inside.text_numbers import HandedTexts, TextNumbers
from probes.proc.procfs import thread_numbers
from probes.samples import listed_gpus
from probes.schema import CallFlag, ExitFlag, Kind, Records
from probes.source import PROBLEM, PROCESS, Sample
from probes.stacks.demangle import demangled

_RANGE, _SPAN, _OVERHEAD = "range", "span", "overhead"
_WHAT: Final = {
    What.KERNEL: KERNEL,
    What.COPY: COPY,
    What.FILL: FILL,
    What.GRAPH: GRAPH,
    What.OVERHEAD: _OVERHEAD,
    What.RANGE: _RANGE,
    What.SPAN: _SPAN,
    What.INSTANT: _RANGE,
}
_ON_GPU: Final = (What.KERNEL, What.COPY, What.FILL, What.GRAPH)
_DIRECTIONS: Final = {1: 1, 2: 2, 8: 3, 10: 3}  # CUpti_ActivityMemcpyKind: H2D, D2H, D2D, between devices
_MEMORY: Final = {1: 0, 2: 1, 3: 2, 5: 4}  # CUpti_ActivityMemoryKind: pageable, pinned, device, managed
_COPY_NAMES: Final = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 3: "Memcpy DtoD"}
_OVERHEADS: Final = {0: "unknown", 1: "compiling", 1 << 16: "buffer flush", 2 << 16: "instrumentation"}
_PAYLOADS: Final = {1: "<u8", 2: "<i8", 3: "<f8", 4: "<u4", 5: "<i4", 6: "<f4"}  # nvtxPayloadType_t
_SLACK_NS: Final = 300  # by which both clocks' readings of one call may be apart
_KEPT_NS: Final = 20_000_000_000  # of calls: their work may run as long
_PATIENCE_NS: Final = 1_000_000_000  # of work whose call has not come yet
_CALLS_KEPT_NS: Final = 3_000_000_000  # of calls that probes saw
_SILENT_NS: Final = 2_000_000_000  # of CUPTI, while the program launches kernels
_FEWEST_UNSEEN: Final = 8  # launches
_LAUNCHES: Final = np.array([row.argument == "kernel" for row in api.BY_OP])
_CAPTURES: Final = np.array(
    [(row.role is Role.CAPTURE_BEGIN) - (row.role is Role.CAPTURE_END) for row in api.BY_OP], np.int64
)
_DISPLACED: Final = "another CUPTI client, such as torch.profiler, has taken its records"
_GROUP_DEAD, _NESTED = np.uint16(ExitFlag.GROUP_DEAD), np.uint16(CallFlag.NESTED)
_MOMENTS: Final = 4_096
_MOST_ROWS: Final = 200_000  # of all programs, from one mark to the next
_MOST_THREADS: Final = 1 << 16  # of a process, whose numbers are remembered
_MOST_STATES: Final = 64  # that a process may report in its life
_LONGEST_SENTENCE: Final = 300
_MOST_ERROR_NS: Final = 1_000_000_000_000
_TOO_MANY_STATES: Final = f"it has started or ended them {_MOST_STATES} times"
_MOST_LOST: Final = 1 << 40  # a program's data may be anything
_MOST_DEVICES: Final = 64
_LATEST_NS: Final = 1_000_000_000  # after now: a program's times may be anything, too

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]
_CALLS: Final = np.dtype([("begin", "<i8"), ("end", "<i8"), ("tid", "<i8"), ("launches", "?")])
_GIVERS: Final = np.dtype([("correlation", "<i8"), ("begin", "<i8"), ("tid", "<i8")])


@dataclass(slots=True)
class _Process:
    """The state of a process, by its number here."""

    inside_pid: int
    rows: list[Rows] = field(default_factory=list)  # as they came
    moments: deque[Rows] = field(default_factory=lambda: deque(maxlen=_MOMENTS))
    calls: Rows = field(default_factory=lambda: np.zeros(0, ROW))  # calls of CUPTI that are not joined yet
    givers: Rows = field(default_factory=lambda: np.zeros(0, _GIVERS))
    work: Table = field(default_factory=lambda: np.zeros(0, TABLE))  # whose call is not known yet
    correlation: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # of these
    uuids: dict[int, str] = field(default_factory=dict)
    # as the process has them -> as the machine has them
    threads: dict[int, int] = field(default_factory=dict)
    reported: int = 0  # rows that were handed over, of those that came or were lost
    lost: int = 0
    dropped: int = 0
    dropped_before: int = 0
    until_ns: int = 0  # all that ended until then has come
    whole_ns: int = 0  # the same at the mark before
    heard_ns: int = 0  # the newest call that CUPTI reported
    state: int = 0
    states: int = 0  # that were reported, and programs that were under this number before
    error_ns: int = 0
    reported_error_ns: int = -1


class Inside:
    """Consumes messages and calls; yields activities and the state of each process."""

    def __init__(self, report: Callable[[Sample], object]) -> None:
        self._report = report
        self._processes: dict[int, _Process] = {}
        self._texts = TextNumbers({*_WHAT.values(), *_COPY_NAMES.values(), "Memcpy", "Memset"})
        self._handed = HandedTexts()
        self._rows_since_mark = 0
        self._gpus: dict[str, int] = {}
        self._calls: dict[int, list[Rows]] = {}  # outermost ones that probes saw, of dtype _CALLS, by process
        self._ended: set[int] = set()
        self._capturing: dict[int, int] = {}  # captures of streams under way, by process
        self._since_mark: list[int] = []

    # -- consuming --------------------------------------------------------------------------------

    def hear(self, record: bytes) -> None:
        """Consumes a message; a damaged one is left out."""
        if len(record) < RECORD.itemsize + HEADER.itemsize:
            return
        head = np.frombuffer(record, RECORD, 1)[0]
        body = record[RECORD.itemsize : RECORD.itemsize + int(head["bytes"])]
        if len(body) < HEADER.itemsize:
            return
        header = np.frombuffer(body, HEADER, 1)[0]
        if int(header["version"]) != VERSION:
            return
        pid, data, count = int(head["pid"]), body[HEADER.itemsize :], int(header["count"])
        process = self._process(pid, header, int(head["time"]))
        message = int(header["message"])
        self._follow(process, int(header["before"]))
        if message == Message.ROWS:
            rows = np.frombuffer(data, ROW, min(count, len(data) // ROW.itemsize))
            self._rows(process, header, rows, int(head["time"]))
        elif message == Message.CLOCK and len(data) >= CLOCK.itemsize:
            process.moments.append(np.frombuffer(data, CLOCK, 1))
        elif message == Message.TEXT:
            self._handed.consume(pid, int(header["number"]), data[:count])
        elif message == Message.DEVICE and int(header["number"]) < _MOST_DEVICES:
            process.uuids[int(header["number"])] = data[:count].decode(errors="replace")
        elif message == Message.STATE:
            sentence = data[: min(count, _LONGEST_SENTENCE)].decode(errors="replace")
            self._hear_state(pid, process, int(header["number"]), sentence, int(head["time"]))

    def _process(self, pid: int, header: Any, now: int) -> _Process:
        known = self._processes.get(pid)
        inside = int(header["pid"])
        if known is None or known.inside_pid != inside:
            states = known.states + 1 if known is not None else 0
            parent = int(header["parent"]) if states < _MOST_STATES else 0
            of = next((key for key, one in self._processes.items() if parent == one.inside_pid), None)
            self._handed.inherit(pid, of if parent else None)
            known = self._processes[pid] = _Process(inside, until_ns=now, whole_ns=now, states=states)
        return known

    def _follow(self, process: _Process, before: int) -> None:
        """Counts rows that were handed over and have not come."""
        if before < process.reported:  # another program, by exec, begins anew
            process.reported, process.dropped_before = before, 0
        process.lost = min(process.lost + before - process.reported, _MOST_LOST)
        process.reported = before

    def _rows(self, process: _Process, header: Any, rows: Rows, now: int) -> None:
        process.reported += len(rows)
        room = max(_MOST_ROWS - self._rows_since_mark, 0)
        process.lost += max(len(rows) - room, 0)
        rows = rows[:room]
        self._rows_since_mark += len(rows)
        if (dropped := int(header["dropped"])) > process.dropped_before:
            process.dropped = min(process.dropped + dropped - process.dropped_before, _MOST_LOST)
            process.dropped_before = dropped
        if len(rows):
            process.rows.append(rows)
        if 0 < int(header["flushed"]) <= now:
            process.until_ns = int(header["flushed"])

    def _hear_state(self, pid: int, process: _Process, state: int, sentence: str, now: int) -> None:
        """Consumes a change of state: each is a sample that stays, so their number is limited."""
        process.states += 1
        if process.states < _MOST_STATES:
            self._state(pid, process, state, sentence, now)
        elif process.states == _MOST_STATES:
            self._state(pid, process, InsideState.DISPLACED, _TOO_MANY_STATES, now)

    def _state(self, pid: int, process: _Process, state: int, sentence: str, now: int) -> None:
        if process.state == InsideState.DISPLACED and state in (InsideState.DISPLACED, InsideState.ENDED):
            return  # reported already
        if state == InsideState.ON:
            # by exec: the earlier program's state is not known
            process.lost += process.state == InsideState.ON
            self._report(Sample(PROCESS, now, {"pid": pid, "inside_from_ns": now}))
            process.heard_ns = now
        elif state == InsideState.ENDED:
            error = max((_error_of(one) for one in process.moments), default=process.error_ns)
            whole = {"inside_until_ns": now, "inside_error_ns": max(error, process.error_ns)}
            self._report(Sample(PROCESS, now, {"pid": pid, **whole}))
        elif state in (InsideState.REFUSED, InsideState.DISPLACED):
            why = "starts without" if state == InsideState.REFUSED else "goes on without"
            text = f"process {pid} {why} --inside's exact kernels: {sentence}"
            self._report(Sample(PROBLEM, now, {"text": text}))
            until = process.until_ns if state == InsideState.DISPLACED else 0
            self._report(
                Sample(PROCESS, now, {"pid": pid, "inside_until_ns": until, "inside_refused": sentence})
            )
        if state != InsideState.RANGES:
            process.state = state

    def notice(self, records: Records) -> None:
        """Keeps outermost calls for a while, also of processes from which nothing was heard yet."""
        ended = (records["kind"] == np.uint8(Kind.EXIT)) & (records["flags"] & _GROUP_DEAD != 0)
        for pid in records["pid"][ended].tolist():
            self._capturing.pop(pid, None)
            self._calls.pop(pid, None) if pid not in self._processes else self._ended.add(pid)
        outer = np.flatnonzero((records["kind"] == np.uint8(Kind.CALL)) & (records["flags"] & _NESTED == 0))
        if not len(outer):
            return
        calls = np.zeros(len(outer), _CALLS)
        calls["end"] = records["t_end"][outer]
        calls["begin"] = calls["end"] - records["duration"][outer].astype(np.int64)
        calls["tid"] = records["tid"][outer]
        calls["launches"] = _LAUNCHES.take(records["op"][outer], mode="clip")
        turns = _CAPTURES.take(records["op"][outer], mode="clip")
        pids = records["pid"][outer]
        for pid in distinct(pids).tolist():
            mine = calls[pids == pid]
            self._leave_captured_out(pid, mine, turns[pids == pid])
            self._calls.setdefault(pid, []).append(mine)

    def _leave_captured_out(self, pid: int, calls: Rows, turns: Ints) -> None:
        """Drops launches during a capture: they give the GPU no work, so CUPTI reports none."""
        before = self._capturing.get(pid, 0)
        if not before and not turns.any():
            return
        order = np.argsort(calls["end"], kind="stable")
        open_ = np.maximum(before + np.cumsum(turns[order]), 0)
        calls["launches"][order] &= open_ == 0
        self._capturing[pid] = int(open_[-1])

    # -- reporting ----------------------------------------------------------------------------------

    def at_mark(self, mark_ns: int, gpus: Sample | None, *, last: bool = False) -> Iterator[Sample]:
        """The activities since the mark before, as samples."""
        for gpu in listed_gpus(gpus):
            if isinstance(gpu.get("uuid"), str) and isinstance(gpu.get("index"), int):
                self._gpus[gpu["uuid"].removeprefix("GPU-").replace("-", "")] = gpu["index"]
        count, lost, since = 0, 0, mark_ns
        for pid, process in list(self._processes.items()):
            before, ended = process.whole_ns, pid in self._ended
            rows = self._joined(pid, process, mark_ns, last=last or ended)
            self._notice_silence(pid, process, mark_ns, last=last or ended)
            if len(rows):
                count += len(rows)
                yield from activity_samples(rows, self._texts.texts, mark_ns)
            if process.moments and process.error_ns > process.reported_error_ns:
                process.reported_error_ns = process.error_ns
                yield Sample(PROCESS, mark_ns, {"pid": pid, "inside_error_ns": process.error_ns})
            missing = process.lost + process.dropped
            if missing:
                since = min(since, before)
            if ended:
                if process.state == InsideState.ON:  # it ended without handing over its rest
                    missing, since = missing + 1, min(since, process.until_ns)
                del self._processes[pid]
                self._handed.drop(pid)
                self._calls.pop(pid, None)
            lost += missing
            process.lost = process.dropped = 0
            process.whole_ns = process.until_ns
        self._ended.clear()
        self._rows_since_mark = 0
        self._texts.forget(process.work for process in self._processes.values())
        for pid, kept in self._calls.items():
            self._calls[pid] = [one[one["end"] > mark_ns - _CALLS_KEPT_NS] for one in kept]
        self._since_mark = [count + lost, since] if count or lost else []

    def _notice_silence(self, pid: int, process: _Process, now: int, *, last: bool) -> None:
        """A client with buffers of its own that does not subscribe shows by launches without records."""
        kept = self._calls.get(pid)
        if process.state not in (InsideState.ON, InsideState.ENDED) or not kept:
            return
        calls = np.concatenate(kept)
        unseen = calls["begin"][
            calls["launches"] & (calls["begin"] > process.heard_ns) & (calls["end"] < process.until_ns)
        ]
        if len(unseen) >= _FEWEST_UNSEEN and (last or int(unseen.min()) < process.until_ns - _SILENT_NS):
            self._state(pid, process, InsideState.DISPLACED, _DISPLACED, now)

    def mark_counts(self) -> list[int]:
        """The mark's counts: how many rows there were, and of which moment on some may be missing."""
        return self._since_mark

    def _joined(self, pid: int, process: _Process, now: int, *, last: bool) -> Table:
        """Rows of activities that can be reported, and keeps the others."""
        rows = self._possible(process, np.concatenate([np.zeros(0, ROW), *process.rows]), now)
        process.rows.clear()
        if not len(rows) and not len(process.work):
            return process.work
        what = rows["what"]
        calls = rows[what == What.CALL]
        if len(calls):
            process.heard_ns = max(process.heard_ns, int(self._monotonic(process, calls["end"]).max()))
        process.calls = np.concatenate([process.calls, calls])
        reported = np.isin(what, [int(one) for one in _WHAT])
        work = self._table(pid, process, rows[reported])
        process.correlation = np.concatenate(
            [process.correlation, rows["correlation"][reported].astype(np.int64)]
        )
        work = np.concatenate([process.work, work])
        self._find_givers(pid, process)
        self._drop_old(process, now)
        on_gpu = np.isin(work["what"], [self._texts.number(_WHAT[one]) for one in _ON_GPU])
        if len(process.givers):
            place = np.searchsorted(process.givers["correlation"], process.correlation)
            giver = process.givers[np.minimum(place, len(process.givers) - 1)]
            found = on_gpu & (giver["correlation"] == process.correlation)
            work["call_begin"][found] = giver["begin"][found]
            work["call_tid"][found] = giver["tid"][found]
        ready = ~on_gpu | (work["call_tid"] >= 0) | (work["end"] < now - _PATIENCE_NS) | last
        process.work, process.correlation = work[~ready], process.correlation[~ready]
        chosen: Table = work[ready]
        return chosen

    def _possible(self, process: _Process, rows: Rows, now: int) -> Rows:
        """Rows that can be true; the others are counted as lost. They would be waited for without end."""
        latest, what = now + _LATEST_NS, rows["what"]
        on_cupti = what <= What.OVERHEAD
        begin, end = (
            np.where(on_cupti, self._monotonic(process, rows[name]), rows[name].astype(np.int64))
            for name in ("begin", "end")
        )
        device = np.where(np.isin(what, _ON_GPU), rows["device"], 0)
        possible = (begin > 0) & (begin <= latest) & (end <= latest) & (device < MOST_GPUS)
        process.lost = min(process.lost + int(np.count_nonzero(~possible)), _MOST_LOST)
        return rows[possible]

    def _find_givers(self, pid: int, process: _Process) -> None:
        """Joins calls of CUPTI with those that probes saw: the outermost one of the thread around each."""
        kept = self._calls.get(pid)
        if not len(process.calls) or not kept:
            return
        calls = np.concatenate(kept)
        calls = calls[np.lexsort((calls["begin"], calls["tid"]))]
        self._calls[pid] = [calls]
        at = self._monotonic(process, process.calls["begin"])
        tids = self._threads(pid, process, process.calls["thread"])
        found = np.full(len(at), -1, np.int64)
        for tid in np.intersect1d(tids, calls["tid"]).tolist():
            low, high = np.searchsorted(calls["tid"], [tid, tid + 1])
            mine = np.flatnonzero(tids == tid)
            place = low + np.searchsorted(calls["begin"][low:high], at[mine] + _SLACK_NS, side="right") - 1
            held = np.maximum(place, low)
            fits = (place >= low) & (calls["end"][held] >= at[mine] - _SLACK_NS)
            # a call around it goes before one that begins within the slack
            before = np.maximum(held - 1, low)
            inside = (calls["begin"][held] > at[mine]) & (calls["end"][before] >= at[mine]) & (before < held)
            found[mine] = np.where(fits, np.where(inside, before, held), -1)
        known = found >= 0
        givers = np.zeros(int(known.sum()), _GIVERS)
        givers["correlation"] = process.calls["correlation"][known]
        givers["begin"], givers["tid"] = calls["begin"][found[known]], calls["tid"][found[known]]
        givers = np.concatenate([process.givers, givers])
        givers = givers[np.argsort(givers["correlation"], kind="stable")]
        process.givers = (
            givers[np.append(True, np.diff(givers["correlation"]) > 0)] if len(givers) else givers
        )
        process.calls = process.calls[~known]

    def _drop_old(self, process: _Process, now: int) -> None:
        """Calls that were so long ago that nothing of them is still to come."""
        process.givers = process.givers[process.givers["begin"] > now - _KEPT_NS]
        process.calls = process.calls[self._monotonic(process, process.calls["begin"]) > now - _PATIENCE_NS]

    def _monotonic(self, process: _Process, at: npt.NDArray[Any]) -> Ints:
        """CUPTI's times on CLOCK_MONOTONIC: between two moments of both clocks, in proportion."""
        if not process.moments:
            return at.astype(np.int64)
        moments = np.concatenate(process.moments)[-_MOMENTS:]
        process.moments = deque([moments], maxlen=_MOMENTS)
        moments = moments[np.argsort(moments["cupti"], kind="stable")]
        process.error_ns = max(process.error_ns, _error_of(moments))
        shift = moments["cupti"].astype(np.int64) - moments["monotonic"].astype(np.int64)
        first = moments["cupti"].astype(np.int64)[:1]  # a forged one may be beyond them
        here = at.astype(np.int64) - first
        there = moments["cupti"].astype(np.int64) - first
        off = np.interp(
            here.astype(np.float64), there.astype(np.float64), (shift - shift[0]).astype(np.float64)
        )
        with np.errstate(invalid="ignore"):  # a program's clock may be anywhere; such rows are left out
            return np.asarray(at.astype(np.int64) - shift[0] - np.rint(off).astype(np.int64), np.int64)

    def _table(self, pid: int, process: _Process, rows: Rows) -> Table:
        table = unknown_rows(len(rows))
        what = rows["what"]
        on_cupti = what <= What.OVERHEAD
        for name in ("begin", "end"):
            table[name] = np.where(
                on_cupti, self._monotonic(process, rows[name]), rows[name].astype(np.int64)
            )
        table["end"] = np.maximum(table["begin"], table["end"])
        table["pid"] = pid
        table["what"] = self._each(what, lambda one: _WHAT[What(one)])
        on_gpu = np.isin(what, [int(one) for one in _ON_GPU])
        table["device"] = np.where(on_gpu, self._devices(process, rows["device"]), -1)
        table["stream"] = np.where(on_gpu, rows["stream"], -1)
        table["graph"] = np.where(on_gpu & (rows["graph"] > 0), rows["graph"], -1)
        moved = np.isin(what, (What.COPY, What.FILL))
        table["bytes"] = np.where(moved, rows["bytes"].astype(np.int64), -1)
        ranges = what >= What.RANGE
        table["tid"] = np.where(ranges, self._threads(pid, process, rows["thread"]), -1)
        copies = what == What.COPY
        direction = self._each_number(rows["detail"] & 0xFF, lambda one: _DIRECTIONS.get(one, -1))
        side = np.where(direction == 2, rows["detail"] >> 16 & 0xFF, rows["detail"] >> 8 & 0xFF)
        table["direction"] = np.where(copies, direction, -1)
        table["memory"] = np.where(copies, self._each_number(side, lambda one: _MEMORY.get(one, -1)), -1)
        texts = self._handed.of(pid)
        names = self._each(rows["name"], lambda one: demangled(texts.get(one, "")))
        names = np.where(
            what == What.COPY, self._each(direction, lambda one: _COPY_NAMES.get(one, "Memcpy")), names
        )
        names = np.where(what == What.FILL, self._texts.number("Memset"), names)
        graphs = what == What.GRAPH
        names[graphs] = self._each(rows["graph"][graphs], lambda one: f"CUDA graph {one}")
        overhead = what == What.OVERHEAD
        names[overhead] = self._each(rows["detail"][overhead], lambda one: _OVERHEADS.get(one, "overhead"))
        table["name"] = names
        table["detail"] = 0
        named = np.flatnonzero(ranges & ((rows["stream"] > 0) | (rows["detail"] > 0)))
        for place in named.tolist():
            table["detail"][place] = self._texts.number(_detail(rows[place], texts))
        return table

    def _each(self, values: npt.NDArray[Any], text: Callable[[int], str]) -> Ints:
        """The numbers of the texts that values stand for."""
        return self._each_number(values, lambda one: self._texts.number(text(one)))

    def _each_number(self, values: npt.NDArray[Any], number: Callable[[int], int]) -> Ints:
        kinds, place = np.unique(values, return_inverse=True)
        found: Ints = np.array([number(one) for one in kinds.tolist()], np.int64)[place.reshape(-1)]
        return found

    def _devices(self, process: _Process, devices: npt.NDArray[Any]) -> Ints:
        """NVML's numbers of devices; CUDA's own where the UUID is not known."""
        return self._each_number(devices, lambda one: self._gpus.get(process.uuids.get(one, ""), one))

    def _threads(self, pid: int, process: _Process, threads: npt.NDArray[Any]) -> Ints:
        """The machine's numbers of threads, which in a container have others of their own."""
        if process.inside_pid == pid:
            return threads.astype(np.int64)
        wanted = set(np.unique(threads).tolist())
        if wanted - set(process.threads):
            process.threads |= thread_numbers(pid)
            if len(process.threads) + len(wanted) < _MOST_THREADS:
                process.threads |= {one: one for one in wanted - set(process.threads)}
        return self._each_number(threads, lambda one: process.threads.get(one, one))


def _error_of(moments: Rows) -> int:
    """By how much clocks may be off, as a program reports it."""
    return min(int(moments["error"].max()), _MOST_ERROR_NS)


def _detail(row: Any, texts: dict[int, str]) -> str:
    """Domain and payload of a range, in words."""
    parts = []
    if domain := texts.get(int(row["stream"]), ""):
        parts.append(f"domain {domain}")
    if kind := _PAYLOADS.get(int(row["detail"])):
        value = np.frombuffer(np.uint64(row["bytes"]).tobytes(), kind, 1)[0]
        parts.append(f"payload {value.item():g}" if kind.startswith("<f") else f"payload {value}")
    return ", ".join(parts)
