"""Energy in words and as JSON: joules of GPUs and processes, a step's, and what a fix saves at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.analysis.evidence.power import Energy, EnergyFigures, OneGpu, ProcessEnergy
from gputop.format import NS_PER_S, format_joules

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Report

_MOST_NAMED = 3


def step_joules(report: Report) -> float | None:
    """What a step takes: its length times the mean power of its process's part."""
    steps, energy = report.steps, report.energy
    watts = energy.watts_of(steps.pid) if energy is not None and steps is not None else None
    if steps is None or watts is None or steps.long is not None:
        return None
    return watts * steps.usual_ns / NS_PER_S


def saved_joules(report: Report, ns: float) -> float | None:
    """What its change saves at most: the time at the GPU's mean power, which an idle GPU seldom takes."""
    if report.energy is None or not report.energy.most_watts:
        return None
    return report.energy.most_watts * ns / NS_PER_S


def energy_text(report: Report) -> str:
    """``Energy: GPU 0 took 563 J (212 W), 16 J a step; by SM time process 7 400 J, …``; "" without power."""
    energy = report.energy
    if energy is None or not energy.gpus:
        return ""
    named = [
        f"GPU {index} took {format_joules(gpu.joules)} ({gpu.watts:.0f} W)"
        for index, gpu in list(energy.gpus.items())[:_MOST_NAMED]
    ]
    if len(energy.gpus) > 1:
        more = f", {len(energy.gpus) - _MOST_NAMED} more" if len(energy.gpus) > _MOST_NAMED else ""
        named = [f"{format_joules(energy.joules)} in all ({', '.join(named)}{more})"]
    a_step = step_joules(report)
    each = f", {format_joules(a_step)} a step" if a_step is not None else ""
    most = sorted(energy.processes.items(), key=lambda one: -one[1])[:_MOST_NAMED]
    whose = ", ".join(f"process {pid} {format_joules(joules)}" for pid, joules in most)
    shares = f"; by SM time {whose}" if len(energy.processes) > 1 else ""
    return f"Energy: {named[0]}{each}{shares}."


def energy_figures(report: Report, energy: Energy) -> EnergyFigures:
    """The key ``energy`` of docs/json.md."""
    most_first = sorted(energy.processes.items(), key=lambda one: -one[1])
    return EnergyFigures(
        tuple(OneGpu(index, gpu) for index, gpu in energy.gpus.items()),
        tuple(ProcessEnergy(pid, joules, energy.watts_of(pid) or 0.0) for pid, joules in most_first),
        step_joules(report),
        tuple(saved_joules(report, finding.gain.ns) or 0.0 for finding in report.findings),
    )
