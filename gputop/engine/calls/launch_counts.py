"""Launches by kernel and shape: counted by process and handle, named where the recording has a name.

A launch of the runtime refers to a host function with its kernel's name (probes/stacks/kernel_resolver.py); a
handle of the driver has the name with which its program requested it, if that call was observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gputop.documents.fields import HIDDEN, Mark, marked
from gputop.documents.shared_schema import ShapeJson
from gputop.engine.accumulator import Part
from gputop.engine.facts import Facts
from gputop.engine.fork_state import packed, signed, unpacked
from gputop.format import escape_text, format_count, format_percent
from probes import api
from probes.arrays import distinct
from probes.schema import ALIASED, CallFlag, Records
from probes.shapes import Shape
from probes.source import APIS, Sample
from probes.stacks.stack_samples import kernel_number

Counts = dict[tuple[int, int], int]  # (process, handle) -> launches
ShapeCounts = dict[tuple[int, int, int], int]  # (process, handle, number of the shape) -> launches
ByShape = Mapping[Shape, int]  # shape -> launches
_SHAPE = 0xFFFFFFFF
NAMELESS = "handles of the driver, without a name"
MOST = 1 << 16  # kernels; further ones are counted under handle 0
_LIBRARIES = (
    ("torch", ("libtorch", "libc10", "libaten")),
    ("cuBLAS", ("libcublas",)),
    ("cuDNN", ("libcudnn",)),
    ("NCCL", ("libnccl",)),
    ("cuFFT", ("libcufft",)),
    ("cuSPARSE", ("libcusparse",)),
)


def library_of(file: str) -> str:
    """Return the library of a kernel's file: ``torch``, ``cuBLAS``, …, else the file's name."""
    base = file.rpartition("/")[2]
    return next((name for name, starts in _LIBRARIES if base.startswith(starts)), base)


@dataclass(slots=True)
class Launched:
    """Launches by kernel; those whose shape is known also by shape."""

    counts: Counts = field(default_factory=dict)
    shapes: ShapeCounts = field(default_factory=dict)

    def add(self, more: Launched) -> None:
        """Add later launches. Beyond ``MOST`` kernels or shapes a kernel is 0, a shape unknown."""
        for (pid, handle), count in more.counts.items():
            key = (pid, handle) if (pid, handle) in self.counts or len(self.counts) < MOST else (pid, 0)
            self.counts[key] = self.counts.get(key, 0) + count
        for shaped, count in more.shapes.items():
            if shaped in self.shapes or len(self.shapes) < MOST:
                self.shapes[shaped] = self.shapes.get(shaped, 0) + count


_SHAPES = 8  # of a kernel, in JSON; ``launches`` and ``unshaped`` list what others have


def shapes_json(shapes: Sequence[tuple[Shape, int]]) -> list[ShapeJson]:
    """Return the first of some shapes with their launches."""
    return [
        {
            "grid": [*shape.grid],
            "block": [*shape.block],
            "shared_bytes": shape.shared_bytes,
            "launches": launches,
        }
        for shape, launches in shapes[:_SHAPES]
    ]


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The launches of one kernel; ``name`` and ``file`` are "" if unknown.

    Attributes:
        shapes: (shape, launches in it), most first; the shapes of all other launches are unknown.
        small: Launches with fewer threads than fill the GPU; None if that is unknown of a GPU.
        over_ns: The time in which they were launched.
    """

    name: str
    file: str
    handle: int
    launches: int
    shapes: Annotated[tuple[tuple[Shape, int], ...], Mark(schema=list[ShapeJson], make=shapes_json)] = ()
    small: int | None = None
    over_ns: Annotated[int, HIDDEN] = field(default=0, compare=False)

    @property
    @marked(Mark())
    def per_second(self) -> float:
        return round(_rate(self, self.over_ns), 3)

    @property
    @marked(Mark())
    def unshaped(self) -> int:
        """Launches of unknown shape."""
        return self.launches - self.shaped

    @property
    @marked(Mark())
    def library(self) -> str:
        """Its library: ``torch``, ``cuBLAS``, …, else its file; "" if unknown."""
        return library_of(self.file)

    @property
    def shown(self) -> str:
        """The name, or the handle of one without."""
        return self.name or f"handle {self.handle:#x}"

    @property
    def shaped(self) -> int:
        """Launches of known shape."""
        return sum(count for _shape, count in self.shapes)


class KernelCounts(Part):
    """Successful outermost launches."""

    def __init__(self) -> None:
        self.sums = Launched()
        self._launches = launching([row.name for row in api.BY_OP])

    def add_sample(self, sample: Sample) -> None:
        """Read the names of the session's functions, by number."""
        if sample.kind == APIS:
            self._launches = launching(str(row[0]) for row in sample.data.get("rows", ()))

    def add_calls(self, calls: Records) -> None:
        wanted = self._launches.take(calls["op"], mode="clip") & (calls["ret"] == 0)
        wanted &= (calls["flags"] & np.uint16(CallFlag.NESTED | CallFlag.ABANDONED)) == 0
        if not wanted.any():
            return
        pids, handles = calls["pid"][wanted], calls["aux"][wanted]
        shapes = calls.view(ALIASED)["shape"][wanted]
        found = Launched()
        for pid in distinct(pids).tolist():
            mine = pids == pid
            kernels, which = np.unique(handles[mine], return_inverse=True)
            counts = np.bincount(which, minlength=len(kernels))
            found.counts |= {(pid, one): n for one, n in zip(kernels.tolist(), counts.tolist(), strict=True)}
            shaped, times = np.unique(
                which.astype(np.uint64) << np.uint64(32) | shapes[mine], return_counts=True
            )
            for key, n in zip(shaped.tolist(), times.tolist(), strict=True):
                if key & _SHAPE:
                    found.shapes[pid, int(kernels[key >> 32]), key & _SHAPE] = n
        self.sums.add(found)

    def payload(self) -> dict[str, Any]:
        counts, shapes = self.sums.counts.items(), self.sums.shapes.items()
        return {
            "kernels": packed([(pid, signed(handle), n) for (pid, handle), n in counts]),
            "shapes": packed([(pid, signed(handle), shape, n) for (pid, handle, shape), n in shapes]),
        }

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add the payload of the next stretch; an older gputop wrote no kernels, or no shapes."""
        if "kernels" in data:
            shapes = unpacked(data, "shapes", 4) if "shapes" in data else []
            self.sums.add(
                Launched(
                    {(pid, handle % 2**64): count for pid, handle, count in unpacked(data, "kernels", 3)},
                    {(pid, handle % 2**64, shape): count for pid, handle, shape, count in shapes},
                )
            )


def kernel_rows(
    launched: Launched, facts: Facts, fill: int | None, over_ns: int = 0
) -> dict[int, tuple[KernelRow, ...]]:
    """Return pid -> its kernels, most launches first; only of processes with a named kernel."""
    shapes: dict[tuple[int, int], dict[Shape, int]] = {}
    for (pid, handle, number), count in launched.shapes.items():
        if (shape := facts.shapes.get(number)) is not None:
            own = shapes.setdefault((pid, handle), {})
            own[shape] = own.get(shape, 0) + count
    found: dict[int, list[KernelRow]] = {}
    for (pid, handle), launches in launched.counts.items():
        frame = next(iter(facts.stacks.frames(kernel_number(pid, handle))), None)
        name, file = (frame.function, frame.file) if frame is not None else ("", "")
        own = shapes.get((pid, handle), {})
        row = KernelRow(name, file, handle, launches, most_first(own), small_among(own, fill), over_ns)
        found.setdefault(pid, []).append(row)
    return {
        pid: tuple(sorted(rows, key=lambda row: (-row.launches, row.shown, row.handle)))
        for pid, rows in found.items()
        if any(row.name for row in rows)
    }


def most_first(shapes: ByShape) -> tuple[tuple[Shape, int], ...]:
    """Return the shapes with their launches, most launches first."""
    return tuple(sorted(shapes.items(), key=lambda row: (-row[1], row[0])))


def small_among(shapes: ByShape, fill: int | None) -> int | None:
    """Return the launches of fewer threads than fill the GPU; None if that, or every shape, is unknown."""
    if not fill or not shapes:
        return None
    return sum(count for shape, count in shapes.items() if shape.threads < fill)


def folded(name: str) -> str:
    """Return a name without result, arguments and template arguments: ``at::native::reduce_kernel<…>``."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    out: list[str] = []
    depth = 0
    for letter in name:
        if letter == "(" and not depth:
            break
        if letter == "<":
            depth += 1
            if depth == 1:
                out.append("<…>")
        elif letter == ">" and depth:
            depth -= 1
        elif not depth:
            out.append(letter)
    return "".join(out)


class Folded(NamedTuple):
    """Kernels that differ in template arguments only: their number and launches, ``shaped``: of known shape.

    ``shape`` is the most frequent one; ``small`` launches have fewer threads than fill the GPU, None:
    unknown.
    """

    name: str
    library: str
    launches: int
    kernels: int
    shape: Shape | None
    small: int | None
    shaped: int


def by_folded_name(rows: Sequence[KernelRow]) -> list[Folded]:
    """Return kernels by folded name and library, most launches first."""
    found: dict[tuple[str, str], list[KernelRow]] = {}
    for row in rows:
        found.setdefault((folded(row.name) if row.name else NAMELESS, row.library), []).append(row)
    made = [_together(key, mine) for key, mine in found.items()]
    return sorted(made, key=lambda row: (-row.launches, row.name))


def _together(key: tuple[str, str], rows: Sequence[KernelRow]) -> Folded:
    shapes: dict[Shape, int] = {}
    for row in rows:
        for shape, count in row.shapes:
            shapes[shape] = shapes.get(shape, 0) + count
    small = [row.small for row in rows if row.small is not None]
    return Folded(
        *key,
        sum(row.launches for row in rows),
        len(rows),
        next((shape for shape, _count in most_first(shapes)), None),
        sum(small) if small else None,
        sum(shapes.values()),
    )


def launching(names: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return True for functions that launch a kernel given as an argument."""
    known = [name in api.OP_OF and api.BY_OP[api.OP_OF[name]].argument == "kernel" for name in names]
    return np.array([*known, False], np.bool_)


# Launches by kernel and shape as text.


def kernels_text(rows: Sequence[KernelRow], duration_ns: int, shown: int) -> list[str]:
    """Return a heading, and a line for each of the first kernels, with its most frequent shape."""
    if not rows:
        return []
    lines = [f"  {'LAUNCHES':>9}{'n/s':>8}  {'LIBRARY':<14} KERNEL"]
    for row in rows[:shown]:
        shape = f"  {shape_text(row.shapes[0][0])}" if row.shapes else ""
        lines.append(
            f"  {row.launches:>9}{format_count(_rate(row, duration_ns)):>8}  "
            f"{escape_text(row.library or '-'):<14} {escape_text(row.shown)}{shape}"
        )
    if rest := rows[shown:]:
        lines.append(f"  {sum(row.launches for row in rest):>9}{'':8}  of {len(rest)} more kernels")
    return [*lines, *(f"  {text}" for text in small_text(rows))]


def small_text(rows: Sequence[KernelRow]) -> list[str]:
    """Return a sentence about launches that cannot fill the GPU, if there are any."""
    known = [row for row in rows if row.small is not None]
    small, shaped = sum(row.small or 0 for row in known), sum(row.shaped for row in known)
    if not small:
        return []
    share = format_percent(100 * small / shaped)
    return [
        f"{share} % of {format_count(shaped)} launches have too few threads to fill the GPU by themselves"
    ]


def shape_text(shape: Shape) -> str:
    """Return a shape in CUDA's syntax: ``<<<10, 512>>>``, ``<<<(4,2), (16,8), 2048>>>``; 2048: bytes."""
    shared = f", {shape.shared_bytes}" if shape.shared_bytes else ""
    return f"<<<{_sizes(shape.grid)}, {_sizes(shape.block)}{shared}>>>"


def _sizes(sizes: tuple[int, int, int]) -> str:
    x, y, z = sizes
    if z != 1:
        return f"({x},{y},{z})"
    return f"({x},{y})" if y != 1 else str(x)


def _rate(row: KernelRow, duration_ns: int) -> float:
    """Launches per second of the recording."""
    return row.launches * 1e9 / max(duration_ns, 1)
