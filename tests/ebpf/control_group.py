"""A control group with limits, for as long as a test takes, of either version of control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import skip_or_fail

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def control_group(controller: str, first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[Path]:
    """Its folder; skips where this machine lets nobody make one.

    Args:
        controller: ``cpu`` or ``memory``.
        first: File -> what is written to it, where the controller has a tree of its own (version 1).
        second: The same where all controllers share one (version 2).
    """
    own = _ROOT / controller
    made = (own if own.exists() else _ROOT) / f"gputop-test-{controller}-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        skip_or_fail(f"no control groups here: {error}")
    try:
        try:
            if made.parent == _ROOT:
                (_ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
            for name, value in (first if made.parent == own else second).items():
                (made / name).write_text(value)
        except OSError as error:
            skip_or_fail(f"the {controller} controller is not to be had here: {error}")
        yield made
    finally:
        made.rmdir()
