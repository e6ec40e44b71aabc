"""For workers of a Dask cluster of this machine: an interrupt of the terminal is for who asks to answer."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(_worker: Any) -> None:
    """Called by Dask, which finds it by its name, in each worker that starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
