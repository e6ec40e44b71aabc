"""The shapes of launches: grid, block and dynamic shared memory, by the number in launches.

A recorder writes each once. A number keeps its meaning within a session; in a merged one each part
has numbers of its own (``gputop/merging/numbering.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from probes.arrays import distinct
from probes.samples import ShapesData
from probes.schema import ALIASED, MAX_SHAPES, SHAPE_SIZES, CallFlag, Kind, Records, select
from probes.source import PROBLEM, SHAPES, Sample

_SHAPE, _CALL = np.uint8(Kind.SHAPE), np.uint8(Kind.CALL)
_ABOUT: Final = "shapes of launches"
_MOST: Final = 1 << 17  # numbers of a session of many parts; those beyond are not known


class Shape(NamedTuple):
    """The shape of a launch; grid and block are (x, y, z), in blocks and in threads."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int

    @property
    def threads(self) -> int:
        return self.blocks * self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


def shape_of(sizes: object) -> Shape | None:
    """The shape of a row of a sample; None where it is none."""
    if not isinstance(sizes, (list, tuple)) or len(sizes) != SHAPE_SIZES:
        return None
    if not all(isinstance(one, int) and 0 <= one < 1 << 32 for one in sizes):
        return None
    return Shape((sizes[0], sizes[1], sizes[2]), (sizes[3], sizes[4], sizes[5]), sizes[6])


def sizes_of(shape: Shape) -> list[int]:
    """A shape as in a sample: grid, block, shared bytes."""
    return [*shape.grid, *shape.block, shape.shared_bytes]


def notice_shapes(records: Records) -> Iterator[Sample]:
    """The samples that follow from SHAPE records of a batch; a sentence where there is no number left."""
    rare = records["kind"] == _SHAPE
    if not rare.any():
        return
    rows = select(records, rare).view(ALIASED)
    rows = rows[rows["shape"] > 0]
    if not len(rows):
        return
    now = int(rows["t_end"][0])
    sizes = np.column_stack([rows["sizes"], rows["shared"]])
    yield Sample(SHAPES, now, {"shape": rows["shape"].tolist(), "sizes": sizes.tolist()})
    if int(rows["shape"].max()) >= MAX_SHAPES - 1:
        text = (
            f"programs launched kernels in more than {MAX_SHAPES} shapes: those of later ones are not known"
        )
        yield Sample(PROBLEM, now, {"text": text, "about": _ABOUT})


def shapes_in(records: Records) -> list[int]:
    """The numbers of shapes that records name."""
    rows = records.view(ALIASED)
    launches = (rows["kind"] == _CALL) & (rows["flags"] & np.uint16(CallFlag.COUNTERS) == 0)
    named = distinct(rows["shape"][launches | (rows["kind"] == _SHAPE)])
    numbers: list[int] = named[named > 0].tolist()
    return numbers


def shapes_sample(shapes: Shapes, numbers: Iterable[int], time_ns: int) -> Sample:
    """The shapes of some numbers, as a sample; unknown ones are left out."""
    rows = [(number, sizes_of(shape)) for number in numbers if (shape := shapes.get(number)) is not None]
    data = {"shape": [number for number, _ in rows], "sizes": [sizes for _, sizes in rows]}
    return Sample(SHAPES, time_ns, data)


class Shapes:
    """The shapes by number."""

    def __init__(self) -> None:
        self._known: dict[int, Shape] = {}

    def consume(self, data: ShapesData | Mapping[str, Any]) -> None:
        """Consumes a sample of kind ``shapes``; damaged rows are left out."""
        for number, sizes in zip(data.get("shape", ()), data.get("sizes", ()), strict=False):
            shape = shape_of(sizes)
            if isinstance(number, int) and shape is not None and len(self._known) < _MOST:
                self._known[number] = shape

    def get(self, number: int) -> Shape | None:
        """The shape of a number; None where it is not known."""
        return self._known.get(number)

    def rows(self) -> list[tuple[int, list[int]]]:
        """(number, sizes) of all."""
        return [(number, sizes_of(shape)) for number, shape in self._known.items()]

    def absorb(self, later: Shapes) -> None:
        """Adds the shapes recorded after these."""
        self._known.update(later._known)

    def __bool__(self) -> bool:
        return bool(self._known)
