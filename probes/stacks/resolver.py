"""From the kernel's records to readable frames: file, line and function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from probes.code.interpreter import Interpreter
from probes.code.layout import (
    CODE_DTYPE,
    CODE_RECORD,
    FILE_BYTES,
    FORK_DTYPE,
    FORK_RECORD,
    FRAME_DTYPE,
    NAME_BYTES,
    NO_FRAME,
    SAMPLED,
    STACK_DTYPE,
    STACK_RECORD,
    TABLE_BYTES,
    TABLE_PARTS,
    Layout,
)
from probes.stacks.linetable import line_at, whole_entries
from probes.stacks.mappings import Mappings, Moment
from probes.stacks.native_frames import Frame, NativeFrames, NotYet

_CODECS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_GENERATIONS = 4  # code objects of one address that are kept: pending stacks may mean the one before
_MOST_CODES = 200_000
MOST_PENDING = 10_000


@dataclass(slots=True)
class _Code:
    file: str
    name: str
    first_line: int
    first_traceable: int
    table: bytearray
    missing: int  # bytes of the table that are still to come


_Made = tuple[int, int, int]  # a code object: serial of the process, address, generation


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack as it is reported: ``frames`` from the innermost on; ``sampled``: native code, by a timer."""

    id: int
    pid: int
    frames: tuple[Frame, ...]
    sampled: bool = False


@dataclass(slots=True)
class _Begun:
    """A stack on its way.

    Its known part stays: while it waits, its code may be freed and its address reused, many times.
    """

    head: np.void
    rows: list[tuple[int, int, int]]  # address of the code, instruction, generation
    read: int  # of the rows, so many
    frames: list[Frame]  # of these


class Resolver:
    """Keeps code objects, and makes stacks of them as they come."""

    def __init__(self, interpreters: Sequence[Interpreter], mappings: Mappings) -> None:
        self._interpreters = interpreters
        self._mappings = mappings
        self.natives = NativeFrames(mappings)
        self._codes: dict[tuple[int, int], dict[int, _Code]] = {}
        self._pending: dict[_Made, list[_Begun]] = {}  # stacks, by the code object that they wait for
        self._waiting = 0  # of them, how many
        self.nameless: list[_Begun] = []  # stacks that wait for the symbols of a file
        self._owned: dict[int, set[tuple[int, int]]] = {}  # pid -> keys of codes

    @property
    def processes(self) -> list[int]:
        return list(self._owned)

    def forget(self, pid: int) -> set[tuple[int, int]]:
        """Drops the code objects of a process that has ended; returns their (serial, address)."""
        keys = self._owned.pop(pid, set())
        for key in keys:
            self._codes.pop(key, None)
        return keys

    def consume(self, records: Iterator[bytes]) -> Iterator[Stack]:
        """The stacks that are complete with these records."""
        for record in records:
            kind = int.from_bytes(record[:4], "little")
            if kind == CODE_RECORD:
                for waiting in self._consume_code(record):
                    yield from self._finished(waiting)
            elif kind == FORK_RECORD:
                fork = np.frombuffer(record, FORK_DTYPE, 1)[0]
                self._mappings.forked(int(fork["pid"]), int(fork["parent"]), int(fork["time"]))
            elif kind == STACK_RECORD:
                head = np.frombuffer(record, STACK_DTYPE, 1)[0]
                rows = np.frombuffer(record, FRAME_DTYPE, int(head["count"]), STACK_DTYPE.itemsize)
                yield from self._finished(_Begun(head, rows.tolist(), 0, []))

    def _finished(self, begun: _Begun) -> Iterator[Stack]:
        """The stack that has begun; none while it waits.

        For code, which another thread met first and sends, or for the symbols of a file.
        """
        try:
            stack = self.stack_of(begun)
        except NotYet:
            if len(self.nameless) < MOST_PENDING:
                self.nameless.append(begun)
            return
        if isinstance(stack, Stack):
            yield stack
            return
        self._pending.setdefault(stack, []).append(begun)
        self._waiting += 1
        while self._waiting > MOST_PENDING:  # its code was lost, and its calls stay unknown
            self._waiting -= len(self._pending.pop(next(iter(self._pending))))

    @property
    def waits(self) -> int:
        """How many stacks wait for symbols."""
        return len(self.nameless)

    def complete(self, goes_on: Callable[[], bool]) -> Iterator[Stack]:
        """Stacks whose symbols have been read by now; those not reached go first the next time."""
        waiting, self.nameless = self.nameless, []
        for place, begun in enumerate(waiting):
            if not goes_on():
                self.nameless = waiting[place:] + self.nameless
                return
            yield from self._finished(begun)

    def _consume_code(self, record: bytes) -> list[_Begun]:
        """Keeps a code object or a part of its table; returns the stacks that waited for the last part."""
        head = np.frombuffer(record, CODE_DTYPE, 1)[0]
        layout = self._layout(int(head["row"]))
        if layout is None:
            return []
        key, generation = (int(head["serial"]), int(head["code"])), int(head["generation"])
        known = self._codes.setdefault(key, {})
        self._owned.setdefault(int(head["pid"]), set()).add(key)
        part = record[CODE_DTYPE.itemsize : CODE_DTYPE.itemsize + int(head["part"])]
        if int(head["table_at"]) == 0:
            blob = head["object"].tobytes()
            known[generation] = _Code(
                _text(head, "file", layout.kind, FILE_BYTES),
                _text(head, "name", layout.kind, NAME_BYTES),
                _i32(blob, layout.first_line),
                0 if layout.first_traceable == NO_FRAME else _i32(blob, layout.first_traceable),
                bytearray(part),
                min(int(head["table_bytes"]), TABLE_PARTS * TABLE_BYTES) - len(part),
            )
            while len(known) > _GENERATIONS:
                del known[next(iter(known))]
            while len(self._codes) > _MOST_CODES:
                del self._codes[next(iter(self._codes))]
        elif (code := known.get(generation)) is not None and len(code.table) == int(head["table_at"]):
            code.table += part
            code.missing -= len(part)
        code = known.get(generation)
        if code is None or code.missing > 0:
            return []
        if int(head["table_bytes"]) > len(code.table):
            minor = self._interpreters[int(head["row"])].version[1]
            code.table = bytearray(whole_entries(bytes(code.table), minor))
        ready = self._pending.pop((*key, generation), [])
        self._waiting -= len(ready)
        return ready

    def _layout(self, row: int) -> Layout | None:
        return self._interpreters[row].layout if row < len(self._interpreters) else None

    def stack_of(self, begun: _Begun) -> Stack | _Made:
        """The stack, or the code object of it that has not come. Raises NotYet for symbols."""
        head, rows = begun.head, begun.rows
        row = int(head["row"])
        if (layout := self._layout(row)) is not None:
            serial, minor = int(head["serial"]), self._interpreters[row].version[1]
            for address, instruction, generation in rows[begun.read :]:
                code = self._codes.get((serial, address), {}).get(generation)
                if code is None or code.missing > 0:
                    return serial, address, generation
                begun.read += 1
                if layout.heap:
                    offset = 2 * instruction
                else:
                    offset = instruction - address - layout.first_instruction
                    if offset < 2 * code.first_traceable:
                        continue  # it is being entered or left, as tracebacks have it
                line = line_at(bytes(code.table), code.first_line, offset, minor)
                begun.frames.append((code.file, line or 0, code.name))
        native = self._native(head, bool(rows))
        sampled = not rows and bool(int(head["serial"]) & SAMPLED)
        return Stack(int(head["id"]), int(head["pid"]), (*native, *begun.frames), sampled)

    def _native(self, head: np.void, under_python: bool) -> tuple[Frame, ...]:
        """The native code above the frames of Python, or without any. Raises NotYet."""
        addresses = head["natives"][: int(head["native_count"])].tolist()
        if not addresses:
            return ()
        state = int(head["native_serial"]), int(head["generation"])
        moment = Moment(int(head["pid"]), int(head["time"]), state)
        if not under_python and int(head["row"]) == NO_FRAME and self._mappings.has_interpreter(moment):
            return ()  # a line of Python is requested, and it is not known here
        interrupted = bool(int(head["serial"]) & SAMPLED)
        return self.natives.frames(moment, addresses, interrupted=interrupted, under_python=under_python)


def _i32(blob: bytes, offset: int) -> int:
    return int.from_bytes(blob[offset : offset + 4], "little", signed=True)


def _text(head: np.void, name: str, kind: int, room: int) -> str:
    """A string object's characters, as wide as its state at bit ``kind``; of a long one the end."""
    length, width = int(head[f"{name}_length"]), int(head[f"{name}_state"]) >> kind & 7
    size = min(length * width, room // 4 * 4)
    text: str = head[name].tobytes()[:size].decode(_CODECS.get(width, "latin-1"), errors="replace")
    return text if length * width <= room else "…" + text
