"""The part of gputop.stats/1 that is no data class; it is ``gputop.engine.session_totals.Stats``."""

from __future__ import annotations

from typing import TypedDict


class MachineJson(TypedDict):
    """What the machine as a whole lost time by; None: its kernel does not tell."""

    steal_ns: int | None
    memory_some_ns: int | None
    memory_full_ns: int | None
    tcp_retransmits: int | None
