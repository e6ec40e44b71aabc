"""Where an interpreter's threads keep their state: lists in a memory that anybody may have written."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

from probes.code.interpreter import Interpreter
from probes.code.layout import (
    NO_FRAME,
    TLS_MODULE_BYTES,
    TLS_MODULES,
    TLS_MOST_MODULES,
    TLS_STATIC,
    Layout,
    slot_of,
)
from probes.files.mmap_events import Mapped

_SCAN_BYTES = 2304  # a thread's own block, in which its specific values lie
# A process may have written anything where its threads are listed, also a list without an end. Ten thousand
# threads take 50 ms, and those are enough to know the place from: the others keep their state there, too.
_MOST_STATES = 10_000
_LOOK_S = 0.05


class NotYetError(Exception):
    """The interpreter is still being initialised; a later try may succeed."""


class NoSlotError(Exception):
    """Where threads keep their state is not found: other threads than glibc's."""


@dataclass(frozen=True, slots=True)
class InterpreterPlace:
    """Where an interpreter is in a process, as in ``layout.PROCESS``."""

    slot: int
    code_type: int
    inner: int = 0
    module: int = 0


_Slot = tuple[int, int, int]  # slot, inner, module
_ADDRESSES = 1 << 64
_MOST_OFFSET = 1 << 31  # of a variable in its block


def locate(memory: int, interpreter: Interpreter, mapping: Mapped) -> InterpreterPlace:
    """The place of its threads' states, checked against all of them, or as many as are read in 50 ms.

    Raises:
        NotYetError: It is being initialised.
        NoSlotError: It cannot be found.
    """
    layout = interpreter.layout
    assert layout is not None
    bias = mapping.span[0] + interpreter.free_offset - mapping.offset - interpreter.code_free
    runtime = bias + interpreter.runtime
    try:
        key = None if layout.key == NO_FRAME else _number(memory, runtime + layout.key, "<I")
        slots: set[_Slot] = set()
        state = 0
        for state in _states(memory, _number(memory, runtime + layout.interpreters), layout):
            thread = _number(memory, state + layout.thread_id)
            if not thread:
                continue
            guess = _variable(memory, interpreter, bias, thread) if key is None else (*slot_of(key), 0)
            if guess is not None and _kept(memory, thread, guess) == state:
                slots.add(guess)
            elif key is not None:
                place = os.pread(memory, _SCAN_BYTES, thread).find(struct.pack("<Q", state))
                slots |= {(place, 0, 0)} if place >= 0 else set()
            if len(slots) > 1:
                break
        if not state:
            raise NotYetError
        if len(slots) != 1:
            raise NoSlotError
        slot, inner, module = slots.pop()
        code_type = bias + interpreter.code_type
        if not 0 <= code_type < 1 << 64:
            raise NoSlotError  # its file has no valid address
        return InterpreterPlace(slot, code_type, inner, module)
    except OverflowError as error:  # no address: the memory was freed meanwhile
        raise NotYetError from error


def packed(interpreter: Interpreter, mapping: Mapped) -> list[Any]:
    """The plain data that ``locate`` needs of both."""
    assert interpreter.layout is not None
    one = interpreter
    places = [one.runtime, one.code_type, one.code_free, one.free_offset, one.state_module, one.state_offset]
    return [astuple(interpreter.layout), places, [mapping.span[0], mapping.offset]]


def unpacked(data: list[Any]) -> tuple[Interpreter, Mapped]:
    """The inverse of ``packed``, with nothing else in it."""
    layout, (runtime, code_type, code_free, free_offset, state_module, state_offset), (begin, offset) = data
    interpreter = Interpreter(
        "",
        (0, 0),
        layout=Layout(*layout),
        runtime=runtime,
        code_type=code_type,
        code_free=code_free,
        free_offset=free_offset,
        state_module=state_module,
        state_offset=state_offset,
    )
    return interpreter, Mapped(0, (begin, begin), (0, 0), "", offset)


def _variable(memory: int, interpreter: Interpreter, bias: int, thread: int) -> _Slot | None:
    """Where a thread has the variable of its state; None where its module has no block there yet."""
    offset = interpreter.state_offset
    if not interpreter.state_module:
        return -offset % _ADDRESSES, 0, 0
    if not 0 <= offset < _MOST_OFFSET:
        return None
    module = _number(memory, bias + interpreter.state_module)
    if not 0 < module < TLS_MOST_MODULES:
        return None
    try:
        block = _number(memory, _number(memory, thread + TLS_MODULES) + TLS_MODULE_BYTES * module)
    except NotYetError:
        return None
    if 0 < thread - block <= TLS_STATIC:
        return (block + offset - thread) % _ADDRESSES, 0, 0
    return TLS_MODULES, offset, module


def _kept(memory: int, thread: int, place: _Slot) -> int:
    """The value in a thread's slot; 0 where it has none."""
    slot, inner, module = place
    try:
        value = _number(memory, (thread + slot) % _ADDRESSES)
        if module:
            value = _number(memory, value + TLS_MODULE_BYTES * module)
        return _number(memory, value + inner) if (inner or module) and value else value
    except NotYetError:
        return 0


def _states(memory: int, interpreter: int, layout: Layout) -> Iterator[int]:
    """The states of the threads of all interpreters; they change while they are read.

    A repeated address ends a list, and everything ends after ``_MOST_STATES`` or ``_LOOK_S``.
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
    """A number. Raises NotYetError where nothing is mapped: what pointed there has changed meanwhile."""
    size = struct.calcsize(form)
    try:
        data = os.pread(memory, size, address)
    except (OSError, OverflowError) as error:
        raise NotYetError from error
    if len(data) < size:
        raise NotYetError
    number: int = struct.unpack(form, data)[0]
    return number
