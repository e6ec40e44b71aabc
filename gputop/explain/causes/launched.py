"""Names of the kernels that some calls launch, where the recording tells them."""

from __future__ import annotations

import numpy as np

from gputop.engine.kernels import folded, launching
from gputop.engine.lines import Line
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints, distinct
from gputop.format import format_percent
from probes.stacks.kernels import kernel_number

_NAMED = 3  # kernels that a sentence names


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


def launched_most(scene: Scene, rows: Ints, what: str) -> tuple[str, ...]:
    """A sentence about the kernels that these calls launch most often; none where no name is known.

    Args:
        scene: Everything.
        rows: Calls; -1 is none.
        what: What is said of the launches, before their names.
    """
    evidence, calls = scene.evidence, scene.evidence.calls
    if not evidence.facts.stacks.names_kernels:
        return ()
    rows = launches_among(evidence, distinct(rows[rows >= 0]))
    found: dict[str, list[Ints]] = {}
    for pid in np.unique(calls["pid"][rows]).tolist():
        for handle, mine in by_handle(evidence, rows[calls["pid"][rows] == pid]):
            found.setdefault(folded(kernel_name(evidence, pid, handle)[0]), []).append(mine)
    counts = {name: sum(map(len, parts)) for name, parts in found.items() if name}
    most = sorted(counts, key=lambda name: (-counts[name], name))[:_NAMED]
    told = []
    for name in most:
        lines = by_line(evidence, np.concatenate(found[name]))
        line = max(lines, key=lambda one: (lines[one], one), default=None)
        at = f" at {line.text()}" if line is not None else ""
        told.append(f"{name} {format_percent(100 * counts[name] / len(rows))} %{at}")
    return (f"{what}: {', '.join(told)}",) if told else ()
