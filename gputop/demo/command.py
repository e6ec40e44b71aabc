"""The words that start a workload, and whether a command is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gputop.process.isolation import isolated

_MODULE = "gputop.demo"
ALONE = "--alone"


def words_of(name: str, duration_s: float | None = None) -> list[str]:
    """What starts a workload, in an environment that has the simulated GPU.

    Args:
        name: One of ``STORIES``.
        duration_s: When it ends; None: when it is stopped.
    """
    return isolated(_MODULE, name, *([str(duration_s)] if duration_s else []))


def is_workload(command: Sequence[str]) -> bool:
    """Whether a command is one of them, started by us or as ``gputop demo NAME --alone``."""
    own = isolated(_MODULE)
    if list(command[: len(own)]) == own:
        return True
    return (
        len(command) > 1 and Path(command[0]).name == "gputop" and command[1] == "demo" and ALONE in command
    )
