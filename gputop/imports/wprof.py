"""Traces of ``wprof -R -J``: JSON lines of scheduler events, calls and kernels on one clock.

A header, the stacks, then events in the order of time (wprof's JSON_SCHEMA.md). Times are seconds since the
session began. A switch-in holds the time off the CPU, the state, and the waker, so chains are as exact as in
gputop's own recordings, except for system calls, which it lacks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gputop.analysis.evidence.api_classes import (
    COPY,
    FILL,
    KERNEL,
    OPERATOR,
    OVERHEAD,
    PYTHON,
    RANGE,
    WAIT,
)
from gputop.imports.gathered import FIRST_STACK, GatheredTrace, ImportFileError
from gputop.imports.names import FRAME_KINDS, cleaned
from gputop.imports.opened import unpacked
from gputop.imports.sqlite_tables import correlation_of, handle, whole
from probes.proc.syscalls import UNKNOWN_SYSCALL
from probes.proc.syscalls import name as syscall_name
from probes.schema import NO_SYSCALL, OffFlag

_ON_GPU: Final = {"cuda_kernel": KERNEL, "cuda_memcpy": COPY, "cuda_memset": FILL, "cuda_sync": WAIT}
_STATES: Final = {
    "interruptible_sleep": 1,
    "freezable": 1,
    "uninterruptible_sleep": 2,
    "killable_sleep": 2,
    "idle": 2,
    "rtlock_wait": 2,
    "frozen": 2,
    "stopped": 4,
    "traced": 8,
    "parked": 0x40,
}  # as the kernel numbers them
_RUNNABLE: Final = frozenset({"runnable", "preempted", "waking"})
_DIRECTIONS: Final = {"HtoD": 1, "DtoH": 2, "DtoD": 3, "PtoP": 3}
_MEMORY: Final = {"pageable": 0, "pinned": 1, "device": 2, "array": 3, "managed": 4}
_WAITS: Final = {
    "event": "Event Sync",
    "stream_wait_event": "Stream Wait Event",
    "stream": "Stream Sync",
    "context": "Context Sync",
}
_OPENED: Final = {"pytrace_entry": PYTHON, "pytorch_entry": OPERATOR, "utrace_entry": RANGE}
_CLOSED: Final = {"pytrace_exit": PYTHON, "pytorch_exit": OPERATOR, "utrace_exit": RANGE}
_FRAME: Final = re.compile(r"\[(U|K|Py)\] (.*)\Z", re.DOTALL)
_SYSCALL: Final = re.compile(r"__(x64|arm64)_sys_(\w+)")
_FAULTS: Final = re.compile(
    r"(?:asm_)?exc_page_fault|do_user_addr_fault|do_page_fault|el0_da|handle_mm_fault"
)
_OF_WPROF: Final = 3  # added to the numbers of its stacks
_FRAMES: Final = 64
_LONGEST: Final = 16 << 20  # bytes of a line
_OFTEN: Final = 3  # wakeups of a process by another from which it counts as a partner


def is_wprof(head: bytes) -> bool:
    """True if a file with this head is wprof's."""
    line = head.partition(b"\n")[0]
    return line.startswith(b"{") and b'"timer_freq_hz"' in line and b'"stack_cnt"' in line


def read_wprof(path: str, folder: str | None = None) -> GatheredTrace:
    """Return the parts of such a file that gputop understands.

    Raises:
        ImportFileError: It is damaged.
    """
    trace = GatheredTrace("wprof", folder)
    reader = _Reader(trace)
    with unpacked(path) as pieces:
        for number, line in enumerate(_lines(path, pieces), 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ImportFileError(f"line {number} of {path} is no JSON: {error}") from error
            if isinstance(row, dict):
                reader.consume(row)
            if not number % 4096:
                trace.settle()
    reader.finish()
    return trace


def _lines(path: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line for line in lines if line.strip())
        if len(rest) > _LONGEST:
            raise ImportFileError(f"a line of {path} is longer than 16 MB: it is none of wprof's")
    if rest.strip():
        yield rest


class _Reader:
    """Consumes lines."""

    def __init__(self, trace: GatheredTrace) -> None:
        self._trace = trace
        self._header: Mapping[str, Any] = {}
        self._left: dict[
            int, tuple[int, int, int]
        ] = {}  # by thread: time, and the next process and thread on its CPU
        self._open: dict[tuple[int, str], list[tuple[int, str, int]]] = {}
        self._names: dict[int, str] = {}
        self._users: set[int] = set()  # processes that use CUDA
        self._woke: Counter[tuple[int, int]] = Counter()  # (who was woken, by whom), processes
        self._syscalls: dict[int, int] = {}  # by stack
        self._machine = ""
        self._end = 0
        self._broken = 0

    def consume(self, row: dict[str, Any]) -> None:
        kind = row.get("t")
        if kind is None:
            if "frames" in row:
                self._stack(row)
            elif "version" in row:
                self._header = row
            return
        at = _ns(row.get("ts"))
        if at is None:
            self._broken += 1
            return
        self._end = max(self._end, at)
        if kind == "switch":
            self._switch(at, row)
        elif kind == "cuda_api":
            self._call(at, row)
        elif kind in _ON_GPU:
            self._add_work(_ON_GPU[kind], at, row)
        elif kind in _OPENED:
            pid, tid = self._task(row.get("task"))
            name = str(row.get("name", ""))
            if kind == "pytrace_entry" and row.get("file"):
                name = f"{row['file']}({whole(row.get('lineno'))}): {name.rpartition('.')[2]}"
            self._open.setdefault((tid, _OPENED[kind]), []).append((at, cleaned(name), pid))
        elif kind in _CLOSED:
            self._close(at, _CLOSED[kind], self._task(row.get("task"))[1])
        elif kind == "timer" and (stack := whole(row.get("stack_id"))) > 0:
            self._trace.places.add((at, self._task(row.get("task"))[1], _number(stack)))
        elif kind == "cuda_overhead":
            pid, tid = self._task(row.get("task"))
            begin = at - (_ns(row.get("dur")) or 0)
            self._trace.activity(OVERHEAD, begin, at, str(row.get("kind", "")), pid=pid, tid=tid)
        elif kind == "task_exit":
            pid, tid = self._task(row.get("task"))
            if pid == tid:
                self._trace.processes.setdefault(pid, {})["exited_ns"] = at

    def _task(self, task: Any) -> tuple[int, int]:
        """(process, thread); 0 of an idle CPU."""
        if not isinstance(task, dict):
            return 0, 0
        pid, tid = whole(task.get("pid")), whole(task.get("tid"))
        if pid <= 0:
            return 0, 0
        tid = self._trace.thread(pid, tid or pid)
        name = str(task.get("comm", ""))
        self._trace.threads[tid] = pid, name
        if task.get("pcomm") or tid == pid:
            self._names[pid] = str(task.get("pcomm") or name)
        return pid, tid

    def _stack(self, row: Mapping[str, Any]) -> None:
        frames, sources = row.get("frames"), row.get("srcs")
        if not isinstance(frames, list):
            return
        places = sources if isinstance(sources, list) and len(sources) == len(frames) else [""] * len(frames)
        rows: list[tuple[str, int, str]] = []
        for frame, source in zip(reversed(frames[-_FRAMES:]), reversed(places[-_FRAMES:]), strict=True):
            found = _FRAME.match(str(frame))
            kind, name = (found[1], found[2]) if found else ("U", str(frame))
            file, _, line = str(source).rpartition(":")
            if kind == "K":
                file, line = "[kernel]", "0"
            rows.append((file, int(line) if line.isascii() and line.isdigit() and len(line) < 9 else 0, name))
        number = whole(row.get("id"))
        self._trace.stacks[_number(number)] = rows
        if (call := self._syscall([name for file, _, name in rows if file == "[kernel]"])) is not None:
            self._syscalls[number] = call

    def _syscall(self, names: list[str]) -> int | None:
        """The system call of a sleeping thread, from the kernel's frames; none: a page fault."""
        for name in reversed(names):
            if _FAULTS.match(name):
                return NO_SYSCALL
            if found := _SYSCALL.match(name):
                self._machine = "aarch64" if found[1] == "arm64" else "x86_64"
                numbers = {syscall_name(number, self._machine): number for number in range(512)}
                return numbers.get(found[2], UNKNOWN_SYSCALL)
        return None

    def _switch(self, at: int, row: Mapping[str, Any]) -> None:
        """The thread switched in was off its CPU up to now."""
        prev, (pid, tid) = self._task(row.get("prev"))[1], self._task(row.get("next"))
        if tid:
            self._returned(at, row, pid, tid)
        if prev:
            self._left[prev] = at, pid, tid

    def _returned(self, at: int, row: Mapping[str, Any], pid: int, tid: int) -> None:
        left, next_pid, next_tid = self._left.pop(tid, (None, 0, 0))
        away = _ns(row.get("offcpu_dur"))
        begin = at - away if away is not None else left
        if begin is None or begin < 0:
            return  # its begin is not in the file
        state, woken = str(row.get("next_state", "")), _ns(row.get("waking_ts"))
        waker_pid, waker = self._task(row.get("waker"))
        flags = 0
        if state in _RUNNABLE:
            flags |= OffFlag.QUEUED
            flags |= OffFlag.INVOLUNTARY if state == "preempted" else 0
            runnable = at - begin
        elif state == "new":
            flags |= OffFlag.BIRTH
            runnable = at - begin
        elif woken is None or not begin <= woken <= at:
            flags |= OffFlag.WAKE_MISSED
            runnable = 0
        else:
            runnable = at - woken
            flags |= 0 if waker else OffFlag.WAKER_IRQ
            if waker:
                self._woke[pid, waker_pid] += 1
        cpu, stack = whole(row.get("cpu")), whole(row.get("offcpu_stack_id"))
        self._trace.switches.add(
            (
                begin,
                at,
                pid,
                tid,
                runnable,
                cpu,
                cpu,
                waker_pid,
                waker,
                next_pid if left == begin else 0,
                next_tid if left == begin else 0,
                int(flags),
                _STATES.get(state, 0 if flags & OffFlag.QUEUED else 1),
                self._syscalls.get(stack, UNKNOWN_SYSCALL),
                _number(stack) if stack else 0,
            )
        )

    def _call(self, at: int, row: Mapping[str, Any]) -> None:
        pid, tid = self._task(row.get("task"))
        self._users.add(pid)
        known = {"correlation": correlation_of(pid, row.get("corr_id"))}
        if whole(row.get("stack_id")) > 0:
            known["stack"] = _number(whole(row.get("stack_id")))
        name = str(row.get("name", "not named")).partition("_v")[0]
        self._trace.call(at - (_ns(row.get("dur")) or 0), at, pid, tid, name, **known)

    def _add_work(self, what: str, at: int, row: Mapping[str, Any]) -> None:
        pid, _ = self._task(row.get("task"))
        self._users.add(pid)
        known = {
            "pid": pid,
            "device": handle(row.get("device_id")),
            "stream": handle(row.get("stream_id")),
            "correlation": correlation_of(pid, row.get("corr_id")),
        }
        name, kind = str(row.get("name", "")), str(row.get("kind", ""))
        if what == KERNEL:
            sizes = [whole(one) for key in ("grid", "block") for one in (row.get(key) or ())]
            if len(sizes) == 6 and all(0 < one < 1 << 32 for one in sizes):
                known["shape"] = self._trace.shape((*sizes, 0))
        elif what == WAIT:
            name = _WAITS.get(kind, kind)
        else:
            known["bytes"] = max(whole(row.get("byte_cnt")), 0)
            name = f"Memcpy {kind}" if what == COPY else "Memset"
        if what == COPY:
            known["direction"] = _DIRECTIONS.get(kind, -1)
            side = {1: "src_kind", 2: "dst_kind"}.get(known["direction"], "")
            known["memory"] = _MEMORY.get(str(row.get(side, "")).lower(), -1)
        self._trace.add_work(what, at - (_ns(row.get("dur")) or 0), at, name, **known)

    def _close(self, at: int, what: str, tid: int) -> None:
        """End the innermost open range."""
        held = self._open.get((tid, what))
        if held:
            begin, name, pid = held.pop()
            self._trace.activity(what, begin, at, name, pid=pid, tid=tid)
            self._trace.frame(FRAME_KINDS.index(what), begin, at, tid, name)

    def finish(self) -> None:
        """Determine the processes of interest, and the limits of the trace."""
        trace = self._trace
        for (tid, what), held in self._open.items():
            while held:
                self._close(self._end, what, tid)
        own = self._users - {0}
        for woken, waker in [pair for pair, count in self._woke.items() if count >= _OFTEN]:
            if woken in self._users and not self._names.get(waker, "").startswith(
                ("kworker", "ksoftirqd", "rcu_")
            ):
                own.add(waker)
        trace.switches.keep("pid", own)
        trace.places.keep("tid", {tid for tid, (pid, _) in trace.threads.items() if pid in own})
        trace.processes = {
            pid: trace.processes.get(pid, {}) | {"name": self._names.get(pid, "")} for pid in own
        }
        trace.strangers = {tid: row for tid, row in trace.threads.items() if row[0] not in own}
        trace.threads = {tid: row for tid, row in trace.threads.items() if row[0] in own}
        trace.header["machine"] = {"architecture": self._machine} if self._machine else {}
        if not self._header.get("capture_cuda", True):
            trace.notes.append("wprof did not capture CUDA (-f cuda)")
        if self._broken:
            trace.problems.append(f"{self._broken} events without a readable time are left out")
        trace.notes.append(
            "wprof records no system calls: the reason of a sleep is known by its waker and, with stacks, by "
            "the kernel's functions"
        )


def _ns(seconds: Any) -> int | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) < 1e9:
        return None
    return round(seconds * 1e9)


def _number(stack: int) -> int:
    return FIRST_STACK * (stack + 1) + _OF_WPROF if 0 <= stack < 1 << 30 else 0
