"""Whatever else this machine runs is no part of the experiment: sessions that get most of the CPU.

Where the kernel groups tasks by session, ``nice`` counts within a session only, and the session has one of
its own.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_AUTOGROUP = Path("/proc/self/autogroup")
PROGRAM = -19
RECORDER = -12  # must be in time for the ring, and is short


def own_session(nice: int) -> None:
    """Makes the calling process the leader of a session before others; for ``preexec_fn``."""
    os.setsid()
    if _AUTOGROUP.exists():
        with contextlib.suppress(OSError):
            _AUTOGROUP.write_text(str(nice))
            return
    with contextlib.suppress(OSError):
        os.nice(nice)


def of_session(pid: int, nice: int) -> None:
    """Gives the session that a process is in such a share."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def ordinary() -> None:
    """Gives the calling process the usual weight, whoever started the suite; for ``preexec_fn``."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
