"""Dask worker setup: the terminal's interrupt is left to the process that waits for the answers."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(_worker: Any) -> None:
    """Called by Dask, which finds it by name, in each starting worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
