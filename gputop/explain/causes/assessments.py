"""Causes that are not pieces of gaps: waste inside calls, rates, the hardware, other ranks."""

from __future__ import annotations

from collections.abc import Callable

from gputop.explain.report import Finding
from gputop.explain.scene import Scene

ASSESSMENTS: tuple[Callable[[Scene, int], list[Finding]], ...] = ()
