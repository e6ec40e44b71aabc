"""From addresses of native code to frames that a person reads: the library's file and the function in it.

Every frame is certain: the first address is exact, and each one behind it is where a frame pointer led to
that its function evidently keeps. Where that ends, or a file is not known, GAP stands for what is missing.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Sequence

from probes.code import elf, foreign, interpreter, libraries
from probes.code.mmap_events import Mapped
from probes.stacks.framepointers import Caller
from probes.stacks.mappings import Mappings, Moment
from probes.stacks.symbols import Functions

Frame = tuple[str, int, str]  # file, line, function

GAP: Frame = ("", 0, "…")  # callers that are not known
_OUTERMOST = "main"  # what called it is nobody's code
_AT_ONCE = 2 << 20  # bytes of symbols that are read while the reader waits: some 20 ms
_MOST_FILES = 256
_MOST_SYMBOLS = 4_000_000  # 20 bytes each
_PATIENCE_S = 2.0

_MOST_ANSWERS = 1 << 16  # some 200 bytes each

Identity = tuple[int, int]
Answer = tuple[Frame | None, Caller]


class NotYet(Exception):  # noqa: N818
    """A file's symbols are being read."""


class NativeFrames:
    """Finds functions; symbols of big files are read in a thread of their own.

    Args:
        mappings: What is mapped where.
    """

    def __init__(self, mappings: Mappings) -> None:
        self._mappings = mappings
        self._files: dict[Identity, Functions | None] = {}  # the least recently used one first
        self._answers: dict[tuple[Identity, str, int, bool], Answer] = {}
        self._reading: dict[Identity, threading.Thread] = {}
        self._read: dict[Identity, Functions | None] = {}

    def frames(
        self, moment: Moment, addresses: Sequence[int], *, interrupted: bool, under_python: bool
    ) -> tuple[Frame, ...]:
        """The frames of a chain of addresses, from the innermost on.

        Args:
            moment: When and where.
            addresses: The first one exact, then what frame pointers led to.
            interrupted: The first one is where a thread was, not where a call returns to.
            under_python: Frames of Python follow: what lies behind the entry of the interpreter is left out.

        Raises:
            NotYet: Ask again.
        """
        found: list[Frame] = []
        for place, address in enumerate(addresses):
            if place == 1 and address == addresses[0] and not interrupted:
                continue  # Linux 6.11 and later know the caller at a function's first instruction, too
            exact = interrupted and place == 0
            frame, caller = self._frame(moment, address, exact=exact)
            if frame is None:
                return (*found, GAP)
            found.append(frame)
            if under_python and _is_interpreter(frame[0]):
                return tuple(found)
            if caller is Caller.NONE:
                return tuple(found)
            if caller is Caller.UNKNOWN:
                return (*found, GAP)
        return (*found, GAP)

    def _frame(self, moment: Moment, address: int, *, exact: bool) -> tuple[Frame | None, Caller]:
        mapping = self._mappings.find(moment, address)
        functions = self._functions(mapping) if mapping is not None else None
        if mapping is None or functions is None or not functions.unchanged:
            return None, Caller.UNKNOWN
        path = mapping.path.removesuffix(" (deleted)")
        key = mapping.file, path, address - mapping.span[0] + mapping.offset, exact
        if key not in self._answers:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = _answer(functions, *key[1:])
        return self._answers[key]

    def _functions(self, mapping: Mapped) -> Functions | None:
        if not mapping.file[1]:
            return None  # code that a program made, or the kernel's own
        self._take_read()
        if mapping.file in self._files:
            self._files[mapping.file] = found = self._files.pop(mapping.file)
            return found
        if mapping.file in self._reading:
            raise NotYet
        reached = libraries.file_of(mapping)
        if reached is None:
            return None  # it may be reached by another process's path
        file = None
        with contextlib.suppress(OSError):
            file = foreign.opened(*reached)
        if file is None:
            self._keep(mapping.file, None)
        elif _table_bytes(file) > _AT_ONCE:
            self._read_later(mapping.file, file)
            raise NotYet
        else:
            self._keep(mapping.file, _functions_of(file))
        return self._files[mapping.file]

    def _read_later(self, mapped: Identity, file: foreign.File) -> None:
        def read() -> None:
            functions = None
            try:
                functions = _functions_of(file)
            finally:
                self._read[mapped] = functions  # whatever happens: else its stacks would wait for ever

        thread = threading.Thread(target=read, name="gputop-symbols", daemon=True)
        self._reading[mapped] = thread
        thread.start()

    def _take_read(self) -> None:
        for file in [file for file in self._reading if file in self._read]:
            self._reading.pop(file).join()
            self._keep(file, self._read.pop(file))

    def _keep(self, file: Identity, functions: Functions | None) -> None:
        self._files[file] = functions
        while len(self._files) > 1 and (
            len(self._files) > _MOST_FILES
            or sum(len(one) for one in self._files.values() if one) > _MOST_SYMBOLS
        ):
            oldest = self._files.pop(next(iter(self._files)))
            if oldest is not None:
                oldest.close()
            self._answers.clear()  # its inode may be another file's from here on

    def wait(self) -> None:
        """Until the symbols that are being read are there; not for ever."""
        deadline = time.monotonic() + _PATIENCE_S
        for thread in list(self._reading.values()):
            thread.join(max(deadline - time.monotonic(), 0))

    def close(self) -> None:
        """Lets go of all files."""
        for functions in self._files.values():
            if functions is not None:
                functions.close()
        self._files.clear()


def _answer(functions: Functions, path: str, offset: int, exact: bool) -> Answer:
    """What is at a place of a file, and what is known of its caller."""
    try:
        return _look_up(functions, path, offset, exact)
    except (OSError, elf.ElfError, struct.error, IndexError, ValueError, OverflowError):  # a damaged file
        return None, Caller.UNKNOWN


def _look_up(functions: Functions, path: str, offset: int, exact: bool) -> Answer:
    place = functions.address(offset)
    if place is None or not (exact or functions.is_behind_call(place)):
        return None, Caller.UNKNOWN
    inside = place if exact else place - 1  # a call may be the last instruction of its function
    function = functions.function(inside)
    caller = functions.caller(inside, function[1] if function else None, interrupted=exact)
    if function is None:
        return (path, 0, f"{path.rpartition('/')[2]}+{place:#x}"), caller
    name, begin = function
    if name == _OUTERMOST:
        caller = Caller.NONE
    # a timer meets a function anywhere: what counts is which one
    return (path, 0, name if exact else f"{name}+{place - begin:#x}"), caller


def _table_bytes(file: foreign.File) -> int:
    """How long its symbols take to read; 0 where it has none that can be read."""
    try:
        return elf.parsed(file, elf.Image.table_bytes)
    except (OSError, elf.ElfError):
        return 0


def _functions_of(file: foreign.File) -> Functions | None:
    """The functions of a file; None where it cannot be read."""
    try:
        return Functions(file)
    except (OSError, elf.ElfError):
        return None


def _is_interpreter(path: str) -> bool:
    return interpreter.may_be(path.rpartition("/")[2])


class Samples:
    """Samples of native code that are told under one number: a timer meets all instructions of a function.

    Only so many are known at a time; what comes later keeps its own number.
    """

    _MOST = 1 << 16

    def __init__(self) -> None:
        self._first: dict[tuple[int, tuple[Frame, ...]], int] = {}
        self._number: dict[int, int] = {}

    def is_new(self, number: int, pid: int, frames: tuple[Frame, ...]) -> bool:
        """Whether these frames are to be told."""
        if len(self._number) >= self._MOST:
            return True
        first = self._first.setdefault((pid, frames), number)
        return self._number.setdefault(number, first) == number

    def number(self, number: int) -> int:
        """The number under which a sample is told."""
        if len(self._number) >= self._MOST:
            return self._number.get(number, number)
        return self._number.setdefault(number, number)  # told so before its frames are known: it stays so
