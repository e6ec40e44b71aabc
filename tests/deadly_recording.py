"""For workers of Dask (``--preload``): who explains the recording called ``deadly`` is ended by a signal."""

from __future__ import annotations

import os
import signal

from gputop.fleet import explain_task


class _Deadly:
    """``look_at`` with that."""

    def __init__(self) -> None:
        self._look_at = explain_task.look_at

    def __call__(self, task: explain_task.Task) -> explain_task.ExplainOutcome:
        if "deadly" in task.path:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._look_at(task)


if not isinstance(explain_task.look_at, _Deadly):  # Dask reads this file twice
    explain_task.look_at = _Deadly()
