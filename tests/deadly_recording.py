"""For workers of Dask (``--preload``): who explains the recording called ``deadly`` is ended by a signal."""

from __future__ import annotations

import os
import signal

from gputop.fleet import work


class _Deadly:
    """``look_at`` with that."""

    def __init__(self) -> None:
        self._look_at = work.look_at

    def __call__(self, task: work.Task) -> work.Outcome:
        if "deadly" in task.path:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._look_at(task)


if not isinstance(work.look_at, _Deadly):  # Dask reads this file twice
    work.look_at = _Deadly()
