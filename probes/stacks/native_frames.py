"""From addresses of native code to readable frames: the library's file and the function in it.

Every frame is certain: the first address is exact, and each one behind it comes from a frame pointer
that its function evidently keeps. Where that ends, or a file is not known, GAP marks the missing frames.
"""

from __future__ import annotations

from collections.abc import Sequence

from probes.code import interpreter
from probes.code.framepointers import Caller
from probes.stacks.demangle import demangled
from probes.stacks.mappings import Mappings, Moment
from probes.stacks.symbol_lookup import Lookups, NotYet

__all__ = ["GAP", "Frame", "NativeFrames", "NotYet", "Samples"]

Frame = tuple[str, int, str]  # file, line, function

GAP: Frame = ("", 0, "…")  # callers that are not known
_OUTERMOST = "main"  # its caller is unknown code
_NAME_LIMIT = 200  # characters; templates' names may have thousands
_END = 1 << 63  # of a file


class NativeFrames:
    """Finds functions by their files' symbols."""

    def __init__(self, mappings: Mappings) -> None:
        self._mappings = mappings
        self._lookups = Lookups()

    def frames(
        self, moment: Moment, addresses: Sequence[int], *, interrupted: bool, under_python: bool
    ) -> tuple[Frame, ...]:
        """The frames of a chain of addresses, from the innermost on.

        Args:
            moment: When and where.
            addresses: The first one exact, then those from frame pointers.
            interrupted: The first one is where a thread was, not where a call returns to.
            under_python: Frames of Python follow: those behind the entry of the interpreter are left out.

        Raises:
            NotYet: Try again later.
        """
        found: list[Frame] = []
        for place, address in enumerate(addresses):
            if place == 1 and address == addresses[0] and not interrupted:
                continue  # Linux 6.11 and later know the caller at a function's first instruction, too
            frame, caller = self._frame(moment, address, exact=interrupted and place == 0)
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
        if mapping is None or not mapping.file[1]:  # or code that a program made, or the kernel's own
            return None, Caller.UNKNOWN
        offset = address - mapping.span[0] + mapping.offset
        answer = self._lookups.lookup(mapping, (offset, exact)) if 0 <= offset < _END else None
        if answer is None:
            return None, Caller.UNKNOWN
        name, begin, place, caller = answer
        path = mapping.path.removesuffix(" (deleted)")
        if not name:
            return (path, 0, f"{path.rpartition('/')[2]}+{place:#x}"), caller
        if name == _OUTERMOST:
            caller = Caller.NONE
        # a timer meets a function anywhere: only the function counts
        return (path, 0, readable(name) + ("" if exact else f"+{place - begin:#x}")), caller

    def wait(self, seconds: float) -> None:
        """Waits until pending files are read, at most so long."""
        self._lookups.wait(seconds)

    def close(self) -> None:
        self._lookups.close()


def readable(name: str) -> str:
    """The name of a function as a person writes it; its end may be cut."""
    text = demangled(name)
    return text if len(text) <= _NAME_LIMIT else text[:_NAME_LIMIT] + "…"


def _is_interpreter(path: str) -> bool:
    return interpreter.may_be(path.rpartition("/")[2])


class Samples:
    """Samples of native code under one number: a timer meets all instructions of a function.

    A limited number is known at a time; later ones keep their own number.
    """

    MOST = 1 << 16

    def __init__(self) -> None:
        self._first: dict[int, dict[tuple[Frame, ...], int]] = {}  # by process
        self._number: dict[int, dict[int, int]] = {}
        self._count = 0  # of numbers

    @property
    def processes(self) -> list[int]:
        """Processes of which samples are known."""
        return list(self._number)

    def is_new(self, number: int, pid: int, frames: tuple[Frame, ...]) -> bool:
        """True if these frames are to be reported."""
        if self._count >= self.MOST:
            return True
        first = self._first.setdefault(pid, {}).setdefault(frames, number)
        return self._numbered(pid, number, first) == number

    def number(self, number: int, pid: int) -> int:
        """The number under which a sample is reported."""
        if self._count >= self.MOST:
            return self._number.get(pid, {}).get(number, number)
        return self._numbered(pid, number, number)  # reported so before its frames are known: it stays so

    def _numbered(self, pid: int, number: int, number_of_name: int) -> int:
        known = self._number.setdefault(pid, {})
        self._count += number not in known
        return known.setdefault(number, number_of_name)

    def forget(self, pid: int) -> None:
        """Drops the samples of a process that has ended."""
        self._first.pop(pid, None)
        self._count -= len(self._number.pop(pid, ()))
