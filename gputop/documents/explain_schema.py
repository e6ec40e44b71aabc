"""The part of gputop.explain/1 that is no data class of the report: energy.

The document itself is ``gputop.analysis.answer.report.Report``.
"""

from __future__ import annotations

from typing import TypedDict


class GpuEnergyJson(TypedDict):
    """The energy of a GPU."""

    index: int
    measured_ns: int
    joules: float
    watts: float


class ProcessEnergyJson(TypedDict):
    """The part of a process."""

    pid: int
    joules: float
    watts: float


class EnergyJson(TypedDict):
    """What GPUs and processes took."""

    gpus: list[GpuEnergyJson]
    processes: list[ProcessEnergyJson]
    step_joules: float | None
    saved_joules: list[float]
