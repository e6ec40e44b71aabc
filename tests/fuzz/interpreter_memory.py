"""The memory of a process that may run Python: lists of interpreters and threads that anybody wrote."""

from __future__ import annotations

import errno
import itertools
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np

from probes.code import thread_states
from probes.code.interpreter import Interpreter
from probes.code.layout import LAYOUTS, NO_FRAME, PROCESS_DTYPE, TLS_MODULE_BYTES, TLS_MODULES, slot_of
from probes.files.mmap_events import Mapped
from tests.fuzz import mutation
from tests.fuzz.target import Target

_BASE, _RUNTIME, _INTERPRETER, _THREADS, _BLOCKS = 0x5500_0000_0000, 0x8000, 0x2_0000, 0x4_0000, 0x8_0000
_STATE_BYTES, _BLOCK_BYTES = 512, 4096
_MANY = 3
_MODULE, _VARIABLE = 0x8800, 40


def _seeds() -> list[bytes]:
    return [msgpack.packb(_process(minor, key)) for minor, key in itertools.product(sorted(LAYOUTS), (3, 40))]


def _process(minor: int, key: int) -> dict[str, Any]:
    """An interpreter with some threads: words by their address, and what its file tells."""
    layout, words = LAYOUTS[minor], dict[int, int]()
    slot, inner = slot_of(key)
    if layout.key == NO_FRAME:  # the variable of a library: all threads have it at one place, or anywhere
        slot, inner = TLS_MODULES, _VARIABLE
        words[_BASE + _MODULE] = key
    else:
        words[_BASE + _RUNTIME + layout.key] = key
    words[_BASE + _RUNTIME + layout.interpreters] = _BASE + _INTERPRETER
    words[_BASE + _INTERPRETER + layout.threads] = _BASE + _THREADS
    for number in range(_MANY):
        state, thread = _BASE + _THREADS + number * _STATE_BYTES, _BASE + _BLOCKS + number * 2 * _BLOCK_BYTES
        words[state + 8] = state + _STATE_BYTES if number + 1 < _MANY else 0
        words[state + layout.thread_id] = thread
        kept = thread + slot
        if layout.key == NO_FRAME:
            table, near = thread + _BLOCK_BYTES, key % 2
            block = thread - 2 * _VARIABLE if near else thread + _BLOCK_BYTES + (_BLOCK_BYTES >> 1)
            words[kept], words[table + TLS_MODULE_BYTES * key] = table, block
            kept = block + _VARIABLE
        elif inner:
            words[kept] = thread + _BLOCK_BYTES
            kept = thread + _BLOCK_BYTES + inner
        words[kept] = state
    offsets = {
        "interpreters": layout.interpreters,
        "next": layout.next_interpreter,
        "threads": layout.threads,
    }
    file = {"runtime": _RUNTIME, "code_type": 0x9000, "code_free": 0x1000, "free_offset": 0x1000, **offsets}
    file |= {"module": _MODULE, "variable": _VARIABLE}
    return {"minor": minor, "file": file, "span": _BASE, "words": [list(pair) for pair in words.items()]}


def _mutate(data: bytes, random: Random) -> bytes:
    try:
        said = msgpack.unpackb(data)
        words = said["words"]
        match random.randrange(8):
            case 0:
                key = random.choice(list(said["file"]))
                said["file"][key] = mutation.number(said["file"][key], random) & (1 << 64) - 1
            case 1:
                said["span"] = mutation.number(said["span"], random) & (1 << 64) - 1
            case 2:
                del words[random.randrange(len(words))]
            case 3:
                words.append([random.choice(words)[1], random.choice(words)[0]])
            case 4:
                random.choice(words)[1] = random.choice(words)[random.randrange(2)]
            case 5:
                words += [
                    [_BASE + _THREADS + 512 * n + 8, _BASE + _THREADS + 512 * (n + 1)] for n in range(500)
                ]
            case _:
                word = random.choice(words)
                word[1] = mutation.number(word[1], random) & (1 << 64) - 1
        return bytes(msgpack.packb(said))
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        msgpack.UnpackException,
    ):
        return random.choice(_seeds())


# -- reading it --------------------------------------------------------------------------------------


class _Memory:
    """Words by address; between those that are close together are zeros, elsewhere is nothing."""

    def __init__(self, words: list[Any]) -> None:
        self._pages = {int(at) >> 12 for at, _ in words} | {(int(at) + 7) >> 12 for at, _ in words}
        self._words = {int(at): struct.pack("<Q", int(value) & (1 << 64) - 1) for at, value in words}

    def pread(self, _file: int, size: int, at: int) -> bytes:
        if at >= 1 << 63 or at < -(1 << 63):
            raise OverflowError("Python int too large to convert to C long")
        if at < 0 or at >> 12 not in self._pages:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        end = at
        while end < at + size and end >> 12 in self._pages:
            end = (end >> 12) + 1 << 12
        data = bytearray(min(end - at, size))
        for place in range(at - 7, at + len(data)):
            for offset, byte in enumerate(self._words.get(place, b"")):
                if 0 <= place + offset - at < len(data):
                    data[place + offset - at] = byte
        return bytes(data)


@contextmanager
def _as_memory(pread: Callable[[int, int, int], bytes]) -> Iterator[None]:
    fake = SimpleNamespace(pread=pread)
    thread_states.os = fake  # type: ignore[attr-defined, assignment]
    try:
        yield
    finally:
        thread_states.os = os  # type: ignore[attr-defined]


def _run(data: bytes, _folder: Path) -> None:
    try:
        said = msgpack.unpackb(data)
        memory, file = _Memory(said["words"]), {key: int(value) for key, value in said["file"].items()}
        layout = replace(
            LAYOUTS[said["minor"]],
            interpreters=file["interpreters"],
            next_interpreter=file["next"],
            threads=file["threads"],
        )
        span = int(said["span"])
        addresses = file["runtime"], file["code_type"], 0, 0, file["code_free"], file["free_offset"]
        variable = file["module"], file["variable"]
        subject = Interpreter("python", (3, said["minor"]), "", layout, *addresses, *variable)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, msgpack.UnpackException):
        return
    mapping = Mapped(5, (span, span + (1 << 20)), (1, 1), "/usr/bin/python3", 0)
    with _as_memory(memory.pread):
        try:
            place = thread_states.locate(99, subject, mapping)
        except (thread_states.NotYetError, thread_states.NoSlotError, OSError):
            return
    content = np.zeros(1, PROCESS_DTYPE)  # as Lines tells the kernel
    content["slot"], content["inner"], content["code_type"] = place.slot, place.inner, place.code_type
    content["module"] = place.module


TARGET = Target(_seeds, _mutate, _run)
