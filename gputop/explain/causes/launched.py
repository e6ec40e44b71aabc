"""Names and shapes of the kernels that some calls launch, where the recording tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gputop.engine.kernels import folded, launching
from gputop.engine.kernels_output import shape_text
from gputop.engine.lines import Line
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints, distinct
from gputop.format import format_percent
from probes.shapes import Shape
from probes.stacks.stack_samples import kernel_number

_NAMED = 3  # kernels that a sentence names
FUSIBLE, SMALL = 0.25, 0.5  # of the launches: from such a share on they are named
# aten/src/ATen/native/cuda: Loops.cuh, MultiTensorApply.cuh; torch/_inductor names its pointwise kernels so
_ELEMENTWISE = ("elementwise_kernel", "multi_tensor_apply_kernel", "triton_poi_")


def launches_among(evidence: Evidence, rows: Ints) -> Ints:
    """Those of some calls that succeeded and launch a kernel which they name by a handle."""
    calls = evidence.calls
    wanted = launching(evidence.apis.names).take(calls["op"][rows], mode="clip")
    wanted &= (calls["ret"][rows] == 0) & ~calls["abandoned"][rows]
    found: Ints = rows[wanted]
    return found


def kernel_name(evidence: Evidence, pid: int, handle: int) -> tuple[str, str]:
    """(name, file) of a kernel; both "" where they are not known."""
    frame = next(iter(evidence.facts.stacks.frames(kernel_number(pid, handle))), None)
    return (frame.function, frame.file) if frame is not None else ("", "")


def by_handle(evidence: Evidence, rows: Ints) -> list[tuple[int, Ints]]:
    """(handle, its launches) of some launches of one process; at least one."""
    handles, which = np.unique(evidence.calls["aux"][rows], return_inverse=True)
    order = np.argsort(which.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(which.reshape(-1)))
    return list(zip(handles.tolist(), np.split(rows[order], ends[:-1]), strict=True))


def by_line(evidence: Evidence, rows: Ints) -> dict[Line, int]:
    """How many of some calls were made at each line; those at unknown lines are at none."""
    found: dict[Line, int] = {}
    stacks, counts = np.unique(evidence.calls["stack"][rows], return_counts=True)
    for stack, count in zip(stacks.tolist(), counts.tolist(), strict=True):
        line = evidence.facts.stacks.line(stack)
        if line is not None:
            found[line] = found.get(line, 0) + count
    return found


def by_shape(evidence: Evidence, rows: Ints) -> dict[Shape, int]:
    """How many of some launches have each shape; those whose shape is not known have none."""
    found: dict[Shape, int] = {}
    numbers, counts = np.unique(evidence.calls["shape"][rows], return_counts=True)
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        shape = evidence.facts.shapes.get(number)
        if shape is not None:
            found[shape] = found.get(shape, 0) + count
    return found


@dataclass(frozen=True, slots=True)
class Named:
    """Kernels of one folded name among some launches, and the line that makes most of these."""

    name: str
    rows: Ints
    line: Line | None

    def text(self, among: int) -> str:
        """The name, its share of so many launches, and the line."""
        at = f" at {self.line.text()}" if self.line is not None else ""
        return f"{self.name} {format_percent(100 * len(self.rows) / among)} %{at}"


def named(scene: Scene, rows: Ints) -> tuple[list[Named], int]:
    """(kernels that some calls launch, most launches first; launches of any kernel among the calls).

    Args:
        scene: Everything.
        rows: Calls; -1 is none.
    """
    evidence, calls = scene.evidence, scene.evidence.calls
    if not evidence.facts.stacks.names_kernels:
        return [], 0
    rows = launches_among(evidence, distinct(rows[rows >= 0]))
    found: dict[str, list[Ints]] = {}
    for pid in np.unique(calls["pid"][rows]).tolist():
        for handle, mine in by_handle(evidence, rows[calls["pid"][rows] == pid]):
            found.setdefault(folded(kernel_name(evidence, pid, handle)[0]), []).append(mine)
    made = []
    for name, parts in found.items():
        own = np.concatenate(parts)
        lines = by_line(evidence, own)
        made.append(Named(name, own, max(lines, key=lambda one: (lines[one], one), default=None)))
    made = [one for one in made if one.name]
    return sorted(made, key=lambda one: (-len(one.rows), one.name)), len(rows)


def launched_most(scene: Scene, rows: Ints, what: str) -> tuple[str, ...]:
    """A sentence about the kernels that these calls launch most often; none where no name is known.

    Args:
        scene: Everything.
        rows: Calls; -1 is none.
        what: What is said of the launches, before their names.
    """
    return _sentence(what, *named(scene, rows))


def elementwise_among(scene: Scene, rows: Ints, what: str) -> tuple[str, ...]:
    """The same of kernels that work on each element by itself, where they are a good part of the launches."""
    kernels, launches = named(scene, rows)
    kernels = [one for one in kernels if is_elementwise(one.name)]
    if sum(len(one.rows) for one in kernels) < FUSIBLE * launches:
        return ()
    return _sentence(what, kernels, launches)


def small_among(scene: Scene, rows: Ints, fill: int | None) -> tuple[str, ...]:
    """The same of launches with fewer threads than fill the GPU, where most are; with their usual shape.

    Args:
        scene: Everything.
        rows: Calls; -1 is none.
        fill: Threads that fill a GPU (``gputop/engine/fills.py``).
    """
    kernels, launches = named(scene, rows)
    if not fill or not launches:
        return ()
    told: list[tuple[int, str]] = []
    for one in kernels:
        shapes = {shape: n for shape, n in by_shape(scene.evidence, one.rows).items() if shape.threads < fill}
        if shapes:
            usual = max(shapes, key=lambda shape: (shapes[shape], shape))
            at = f" at {one.line.text()}" if one.line is not None else ""
            told.append((sum(shapes.values()), f"{one.name} {shape_text(usual)}{at}"))
    small = sum(count for count, _text in told)
    if small < SMALL * launches:
        return ()
    told.sort(key=lambda one: (-one[0], one[1]))
    share = format_percent(100 * small / launches)
    names = ", ".join(text for _count, text in told[:_NAMED])
    return (f"{share} % of launches have too few threads to fill the GPU by themselves: {names}",)


def is_elementwise(name: str) -> bool:
    """Whether a kernel works on each element by itself, by its name: PyTorch's, or made by its compiler."""
    return any(part in name for part in _ELEMENTWISE)


def _sentence(what: str, kernels: Sequence[Named], launches: int) -> tuple[str, ...]:
    told = [one.text(launches) for one in kernels[:_NAMED]]
    return (f"{what}: {', '.join(told)}",) if told else ()
