"""What was launched, by kernel: counted over the stretch, within the steps, by line and shape; GPU time."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import numpy as np

from gputop.explain.answer.kernels import KernelLaunches, KernelReport, in_order
from gputop.explain.causes.launched import by_handle, by_line, by_shape, kernel_name, launches_among
from gputop.explain.chains.scene import Scene
from gputop.explain.chains.steps import Steps
from gputop.explain.estimates.kerneltimes import GpuTimeOf, Mixtures, mixtures
from gputop.explain.evidence.effort import WHOLE, Effort
from gputop.explain.evidence.linked import kernel_times
from gputop.explain.evidence.ranges import Ints
from gputop.explain.proofs.kernels import held_kernels


def kernels_of(
    scene: Scene,
    pids: frozenset[int] | None = None,
    effort: Effort = WHOLE,
    alone: Container[int] = (),
) -> KernelReport | None:
    """The launches that returned in the stretch, of these processes or of all.

    Only outermost launches that succeeded count, and only processes of which some kernel has a name. Steps
    are those of the process whose steps are told, if nothing else is in them.

    Args:
        scene: Everything.
        pids: The processes; None for all.
        effort: How much of a long stretch is looked at closely.
        alone: GPUs all of whose work is seen: of others no time is estimated.

    Returns:
        None where no kernel has a name.
    """
    evidence, calls = scene.evidence, scene.evidence.calls
    if not evidence.facts.stacks.names_kernels:
        return None
    low, high = scene.analysis.gpu.stretch
    rows = np.flatnonzero((calls["end"] > low) & (calls["end"] <= high))
    rows = launches_among(evidence, rows)
    steps = _complete(scene)
    exact = kernel_times(evidence) if held_kernels(evidence) else None
    solved = [] if exact is not None else list(_solved(scene, effort, alone))
    made: list[KernelLaunches] = []
    for pid in np.unique(calls["pid"][rows]).tolist():
        if pids is None or pid in pids:
            made += _of_process(scene, steps, pid, rows[calls["pid"][rows] == pid], solved, exact)
    told = {} if steps is None else {int(evidence.threads.pid[steps.thread]): steps.count}
    return KernelReport(high - low, told, in_order(made), scene.evidence.fill).of(pids)


def _solved(scene: Scene, effort: Effort, alone: Container[int]) -> Iterator[Mixtures]:
    """Of each of these GPUs whose waits tell kernels apart."""
    analysis = scene.analysis
    learned = {one.device: (one.queue, one.learned) for one in analysis.estimates}
    for span in analysis.gpu.spans:
        if span.device not in alone:
            continue
        known = learned.get(span.device)
        found = mixtures(analysis.evidence, analysis.gpu, span.device, effort.operations, known)
        if found is not None:
            yield found


def _gpu_time(solved: Sequence[Mixtures], rows: Ints, exact: Ints | None, captured: int) -> GpuTimeOf | None:
    """The GPU time of these launches; None where it is not known of some.

    Args:
        solved: What waits tell of it.
        rows: The launches.
        exact: Of each call how long its kernel ran, where the file tells that.
        captured: How many of the launches went into graphs, where they do not run as themselves.
    """
    if exact is not None:
        known = exact[rows] >= 0
        whole = not captured and int(np.count_nonzero(known)) == len(rows)
        return GpuTimeOf(float(exact[rows].sum()), 0.0) if whole else None
    parts = [(one, rows[one.among(rows)]) for one in solved]
    if sum(len(mine) for _one, mine in parts) != len(rows):
        return None
    times = [one.time(mine) for one, mine in parts if len(mine)]
    told = [one for one in times if one is not None]
    if not told or len(told) < len(times):
        return None
    return GpuTimeOf(sum(one.ns for one in told), sum(one.error_ns for one in told))


def _of_process(
    scene: Scene,
    steps: Steps | None,
    pid: int,
    rows: Ints,
    solved: Sequence[Mixtures],
    exact: Ints | None,
) -> list[KernelLaunches]:
    evidence, calls = scene.evidence, scene.evidence.calls
    if steps is not None and evidence.threads.pid[steps.thread] != pid:
        steps = None
    by_name: dict[tuple[str, str], list[Ints]] = {}
    for handle, mine in by_handle(evidence, rows):
        by_name.setdefault(kernel_name(evidence, pid, handle), []).append(mine)
    if not any(name for name, _file in by_name):
        return []
    found = []
    for (name, file), parts in by_name.items():
        mine = np.concatenate(parts)
        lines = by_line(evidence, mine)
        stepped = _within(steps, calls["begin"][mine]) if steps is not None else 0
        captured = int(np.count_nonzero(scene.analysis.gpu.streams.into_graphs(mine)))
        found.append(
            KernelLaunches(
                pid,
                name,
                file,
                len(parts),
                len(mine),
                stepped,
                lines,
                by_shape(evidence, mine),
                captured,
                _gpu_time(solved, mine, exact, captured) if name else None,
            )
        )
    return found


def _complete(scene: Scene) -> Steps | None:
    """The steps between two others of their loop, if nothing else is in them; None without."""
    steps = scene.steps
    if steps is None:
        return None
    # where the first of a loop begins, and the last one ends, is not known
    inner = (np.diff(steps.loop, prepend=-1) == 0) & (np.diff(steps.loop, append=-1) == 0)
    complete = steps.whole & inner
    return steps.take(complete) if complete.any() else None


def _within(steps: Steps, times: Ints) -> int:
    """How many of these moments lie in a step."""
    step = np.searchsorted(steps.begin, times, side="right") - 1
    return int(np.count_nonzero((step >= 0) & (times < steps.until[np.maximum(step, 0)])))
