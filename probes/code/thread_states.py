"""Where an interpreter's threads keep their state: lists in a memory that anybody may have written."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

from probes.code.interpreter import Interpreter
from probes.code.layout import Layout, slot_of
from probes.code.mmap_events import Mapped

_SCAN_BYTES = 2304  # a thread's own block, in which its specific values lie
# A process may have written anything where its threads are listed, also a list without an end. Ten thousand
# threads take 50 ms, and those are enough to know the place from: the others keep their state there, too.
_MOST_STATES = 10_000
_LOOK_S = 0.05


class NotYetError(Exception):
    """The interpreter has not come far enough; it may be asked again."""


class NoSlotError(Exception):
    """Where threads keep their state is not found: other threads than glibc's."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an interpreter is in a process: what ``layout.PROCESS`` holds."""

    slot: int
    code_type: int
    inner: int = 0


def locate(memory: int, interpreter: Interpreter, mapping: Mapped) -> Place:
    """Where its threads' states are, checked against all of them, or as many as are read in 50 ms.

    Args:
        memory: Descriptor of the process's memory.
        interpreter: What its file tells.
        mapping: Of the file in that process, with its code.

    Raises:
        NotYetError: It is being initialised.
        NoSlotError: It cannot be found.
    """
    layout = interpreter.layout
    assert layout is not None
    bias = mapping.span[0] + interpreter.free_offset - mapping.offset - interpreter.code_free
    runtime = bias + interpreter.runtime
    try:
        key = _number(memory, runtime + layout.key, "<I")
        guess = slot_of(key)
        slots: set[tuple[int, int]] = set()
        state = 0
        for state in _states(memory, _number(memory, runtime + layout.interpreters), layout):
            thread = _number(memory, state + layout.thread_id)
            if not thread:
                continue
            if _kept(memory, thread, guess) == state:
                slots.add(guess)
            elif (place := os.pread(memory, _SCAN_BYTES, thread).find(struct.pack("<Q", state))) >= 0:
                slots.add((place, 0))
            if len(slots) > 1:
                break
        if not state:
            raise NotYetError
        if len(slots) != 1:
            raise NoSlotError
        slot, inner = slots.pop()
        code_type = bias + interpreter.code_type
        if not 0 <= code_type < 1 << 64:
            raise NoSlotError  # its file says what no address is
        return Place(slot, code_type, inner)
    except OverflowError as error:  # no address: the memory was freed meanwhile
        raise NotYetError from error


def packed(interpreter: Interpreter, mapping: Mapped) -> list[Any]:
    """What ``locate`` needs of both, as plain data."""
    assert interpreter.layout is not None
    one = interpreter
    places = [one.runtime, one.code_type, one.code_free, one.free_offset]
    return [astuple(interpreter.layout), places, [mapping.span[0], mapping.offset]]


def unpacked(data: list[Any]) -> tuple[Interpreter, Mapped]:
    """The same again, with nothing else in it."""
    layout, (runtime, code_type, code_free, free_offset), (begin, offset) = data
    interpreter = Interpreter(
        "",
        (0, 0),
        layout=Layout(*layout),
        runtime=runtime,
        code_type=code_type,
        code_free=code_free,
        free_offset=free_offset,
    )
    return interpreter, Mapped(0, (begin, begin), (0, 0), "", offset)


def _kept(memory: int, thread: int, slot: tuple[int, int]) -> int:
    """What a thread keeps in a slot; 0 where it has none."""
    try:
        value = _number(memory, thread + slot[0])
        return _number(memory, value + slot[1]) if slot[1] and value else value
    except NotYetError:
        return 0


def _states(memory: int, interpreter: int, layout: Layout) -> Iterator[int]:
    """The states of the threads of all interpreters; they change while they are read.

    What was there before ends a list, and everything ends after ``_MOST_STATES`` or ``_LOOK_S``.
    """
    seen: set[int] = set()
    until = time.monotonic() + _LOOK_S

    def more(address: int) -> bool:
        if not address or address in seen or len(seen) >= _MOST_STATES or time.monotonic() > until:
            return False
        seen.add(address)
        return True

    while more(interpreter):
        state = _number(memory, interpreter + layout.threads)
        while more(state):
            yield state
            state = _number(memory, state + 8)
        interpreter = _number(memory, interpreter + layout.next_interpreter)


def _number(memory: int, address: int, form: str = "<Q") -> int:
    """Raises NotYetError where nothing is mapped: what pointed there has changed meanwhile."""
    size = struct.calcsize(form)
    try:
        data = os.pread(memory, size, address)
    except (OSError, OverflowError) as error:
        raise NotYetError from error
    if len(data) < size:
        raise NotYetError
    number: int = struct.unpack(form, data)[0]
    return number
