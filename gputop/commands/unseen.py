"""Why a command has seen no CUDA call: what became of the program, or which process to name instead."""

from __future__ import annotations

from gputop.process.child import Child
from gputop.process.targets import named, without_cuda


def unseen(child: Child | None, pids: tuple[int, ...] | None, seconds: float) -> str:
    """A sentence with the next step.

    Args:
        child: The program that was started.
        pids: The processes that were watched.
        seconds: For how long.
    """
    if child is not None:
        if ended := child.outcome():
            return f"{ended} without a CUDA call"
        return f"{child.name} made no CUDA call in {seconds:.1f} s"
    if pids:
        who = named(pids[0]) if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
        return without_cuda(pids) or (
            f"{who} made no CUDA call in {seconds:.1f} s: --duration observes for longer, gputop check --pid "
            f"{','.join(map(str, pids))} shows whether its calls can be seen"
        )
    return (
        f"no process made a CUDA call in {seconds:.1f} s: --duration observes for longer, gputop check shows "
        "what can be observed"
    )
