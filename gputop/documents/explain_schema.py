"""The parts of gputop.explain/1 that are no data class of the report: kernels and energy.

The document itself is ``gputop.analysis.answer.report.Report``.
"""

from __future__ import annotations

from typing import TypedDict

from gputop.documents.shared_schema import LineJson, ShapeJson


class KernelLineJson(LineJson):
    """A line, and the launches of a kernel that were made there."""

    launches: int


class GpuTimeJson(TypedDict):
    """GPU time, estimated by regression, and by how much that may be off."""

    estimate: int
    error: int


class LaunchedKernelJson(TypedDict):
    """The launches of one process that have one name; "" is the name of all that have none."""

    pid: int
    name: str
    file: str
    library: str
    handles: int
    launches: int
    per_second: float
    per_step: float | None
    lines: list[KernelLineJson]
    unplaced: int
    shapes: list[ShapeJson]
    unshaped: int
    small: int | None
    captured: int
    gpu_ns: GpuTimeJson | None


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


class ExactGpuJson(TypedDict):
    """A GPU; what is exposed ran while nothing else did."""

    label: str
    busy_ns: int
    copies_ns: int
    exposed_copies_ns: int
    communication_ns: int
    exposed_communication_ns: int


class ExactLineJson(LineJson):
    """A line, and the GPU time of what it launched."""

    ns: int


class ExactKernelJson(TypedDict):
    """The runs of kernels of one name; delays are of the linked ones, whose launch is known."""

    pid: int
    name: str
    runs: int
    ns: int
    longest_ns: int
    linked: int
    delay_ns: int
    longest_delay_ns: int
    ahead: int
    lines: list[ExactLineJson]


class ExactJson(TypedDict):
    """What GPUs did by their own clock, which may be ``error_ns`` off; None: not known."""

    error_ns: int | None
    gpus: list[ExactGpuJson]
    kernels: list[ExactKernelJson]
