"""Causes that are not pieces of gaps: waste inside calls, rates, the hardware, other ranks."""

from __future__ import annotations

from collections.abc import Callable

from gputop.explain.answer.report import Finding
from gputop.explain.causes.copies import pageable_copies
from gputop.explain.causes.hardware import contention, slow_clocks
from gputop.explain.causes.late import late_spins
from gputop.explain.causes.launches import launch_bound
from gputop.explain.causes.ranks import stragglers
from gputop.explain.chains.scene import Scene

ASSESSMENTS: tuple[Callable[[Scene, int], list[Finding]], ...] = (
    pageable_copies,
    launch_bound,
    late_spins,
    stragglers,
    slow_clocks,
    contention,
)
