"""Launches by kernel and shape, as JSON (docs/json.md) and as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.documents.shared_schema import ShapeJson
from gputop.documents.stats_schema import KernelJson
from gputop.engine.kernels import KernelRow
from gputop.format import escape_text, format_count, format_percent
from probes.shapes import Shape

_SHAPES = 8  # of a kernel, in JSON; ``launches`` and ``unshaped`` tell what others have


def kernel_json(row: KernelRow, duration_ns: int) -> KernelJson:
    """One kernel, launched over so long a time."""
    return {
        "name": row.name,
        "file": row.file,
        "library": row.library,
        "handle": row.handle,
        "launches": row.launches,
        "per_second": round(_rate(row, duration_ns), 3),
        "shapes": shapes_json(row.shapes),
        "unshaped": row.launches - row.shaped,
        "small": row.small,
    }


def shapes_json(shapes: Sequence[tuple[Shape, int]]) -> list[ShapeJson]:
    """The first of some shapes with their launches."""
    return [
        {
            "grid": [*shape.grid],
            "block": [*shape.block],
            "shared_bytes": shape.shared_bytes,
            "launches": launches,
        }
        for shape, launches in shapes[:_SHAPES]
    ]


def kernels_text(rows: Sequence[KernelRow], duration_ns: int, shown: int) -> list[str]:
    """A heading, and a line for each of the first kernels, with its most frequent shape."""
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
    """A sentence about launches that cannot fill the GPU, where there are any."""
    known = [row for row in rows if row.small is not None]
    small, shaped = sum(row.small or 0 for row in known), sum(row.shaped for row in known)
    if not small:
        return []
    share = format_percent(100 * small / shaped)
    return [
        f"{share} % of {format_count(shaped)} launches have too few threads to fill the GPU by themselves"
    ]


def shape_text(shape: Shape) -> str:
    """As CUDA writes a launch: ``<<<10, 512>>>``, ``<<<(4,2), (16,8), 2048>>>``; the third are bytes."""
    shared = f", {shape.shared_bytes}" if shape.shared_bytes else ""
    return f"<<<{_sizes(shape.grid)}, {_sizes(shape.block)}{shared}>>>"


def _sizes(sizes: tuple[int, int, int]) -> str:
    x, y, z = sizes
    if z != 1:
        return f"({x},{y},{z})"
    return f"({x},{y})" if y != 1 else str(x)


def _rate(row: KernelRow, duration_ns: int) -> float:
    """Launches a second of the recording."""
    return row.launches * 1e9 / max(duration_ns, 1)
