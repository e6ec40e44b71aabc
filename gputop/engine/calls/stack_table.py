"""The stacks of a recording, and the source line of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from gputop.documents.shared_schema import LineJson
from gputop.engine.calls.frameworks import Framework, frameworks_of_file
from probes.code.source_files import is_library
from probes.samples import FramesData
from probes.stacks.stack_samples import is_kernel_number

MOST_STACKS = 1 << 20
MANY_STACKS = 100_000  # with more of them, those of ended processes that are no longer shown are dropped


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """A line of source: file, number (0 if unknown), function.

    Of native code the library's file, 0, and the function with the offset in it (``copy+0x41``).
    """

    file: str
    line: int
    function: str

    @property
    def is_native(self) -> bool:
        """True for native code, whose lines are unknown."""
        return self.line == 0 and not self.file.endswith(".py") and not self.file.startswith("<")

    @property
    def is_operator(self) -> bool:
        """True for an operator or a built-in function recorded by a profiler, which has no line."""
        return self.line == 0 and self.file in ("<torch>", "<built-in>")

    @property
    def place(self) -> str:
        """``train.py:42``, ``libcopy.so``; ``train.py:?`` if its line table is too long."""
        name = self.file.rpartition("/")[2]
        if self.is_operator:
            return name.strip("<>")
        return name if self.is_native else f"{name}:{self.line or '?'}"

    @property
    def brief(self) -> str:
        """``train.py:42``, or of native code ``copy+0x41``."""
        return self.function if self.is_native or self.is_operator else self.place

    def text(self) -> str:
        """Return ``train.py:42 in mask()``, ``copy+0x41 in libcopy.so``."""
        return self._of(self.file.rpartition("/")[2])

    def full_text(self) -> str:
        """Return the same with the whole path of the file."""
        return self._of(self.file)

    def _of(self, file: str) -> str:
        if self.is_operator:
            return f"{self.function} in {self.place}"
        if not self.is_native:
            return f"{file}:{self.line or '?'} in {self.function}()"
        # without symbols the function is named after its file
        return self.function if self.function.startswith(f"{self.place}+") else f"{self.function} in {file}"

    def to_json(self) -> LineJson:
        return {"file": self.file, "line": self.line, "function": self.function}


def in_backward(frames: Iterable[Line]) -> bool:
    """True if a stack is within PyTorch's ``backward()``, where a wait is for autograd's threads."""
    return any(
        "/torch/autograd/" in frame.file or frame.file.endswith("/torch/_tensor.py") for frame in frames
    )


def line_json(line: Line | None) -> LineJson | None:
    """Return the JSON of a line that may be unknown."""
    return line.to_json() if line is not None else None


class Stacks:
    """The stacks reported by samples, by their number in calls."""

    def __init__(self) -> None:
        self.names_kernels = False  # True if any kernel has a name
        self._frames: dict[int, tuple[Line, ...]] = {}
        self.known: dict[Line, Line] = {}  # one object for each line of all stacks
        self._of: dict[int, set[int]] = {}  # of each living process
        self._frameworks: dict[int, frozenset[Framework]] = {}
        self._over: deque[tuple[int, set[int]]] = deque()

    def consume(self, data: FramesData) -> None:
        pids = chain(data.get("pid", ()), repeat(0))  # a file may lack them
        for pid, number, frames in zip(pids, data.get("stack", ()), data.get("frames", ()), strict=False):
            if len(self._frames) >= MOST_STACKS:
                return
            stack = int(number)
            lines = self._frames[stack] = tuple(self._line(frame) for frame in frames)
            self._of.setdefault(int(pid), set()).add(stack)
            loaded = self._frameworks.get(int(pid), frozenset())
            self._frameworks[int(pid)] = loaded.union(*(frameworks_of_file(line.file) for line in lines))
            self.names_kernels = self.names_kernels or is_kernel_number(stack)

    def forget(self, pids: Iterable[int]) -> None:
        """Mark processes as ended: beyond ``MANY_STACKS`` their stacks are dropped, earliest first."""
        self._over.extend((pid, self._of.pop(pid)) for pid in pids if pid in self._of)
        while len(self._frames) > MANY_STACKS and self._over:
            pid, stacks = self._over.popleft()
            self._frameworks.pop(pid, None)
            for stack in stacks - self._of.get(pid, frozenset()):  # another process may have the number now
                self._frames.pop(stack, None)
            if len(self.known) > 2 * MANY_STACKS:
                held = list(self._frames.values())
                self.known = {line: line for frames in held for line in frames}

    def frameworks(self, pid: int) -> frozenset[Framework]:
        """Return the frameworks of a process, by the files of its stacks."""
        return self._frameworks.get(pid, frozenset())

    def _line(self, frame: Iterable[Any]) -> Line:
        file, line, function = frame
        found = Line(str(file), int(line), str(function))
        return self.known.setdefault(found, found)

    def frames(self, stack: int) -> tuple[Line, ...]:
        """Return the frames of a stack from the innermost on; none if unknown."""
        return self._frames.get(stack, ())

    def line(self, stack: int) -> Line | None:
        """Return the innermost line of Python outside of libraries, else native code, else the innermost."""
        frames = [frame for frame in self.frames(stack) if frame.file]  # without marks for missing callers
        python = [frame for frame in frames if not frame.is_native]
        for frame in (*python, *frames):
            if not is_library(frame.file):
                return frame
        return next(iter((*python, *frames)), None)
