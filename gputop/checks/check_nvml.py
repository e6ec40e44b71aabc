"""NVML: library, driver, GPUs, and figures that are not available."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from gputop.checks.check_bcc import mapped_library
from gputop.checks.distribution import Distribution
from gputop.checks.fact import Fact, Section, missing, note, ok
from probes.nvml import nvml

_ROUND_S = 0.1  # some figures are the difference of two rounds
_PATIENCE_S = 3.0  # a GPU in trouble answers late or never


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """A GPU, the figures that NVML does not report with the reasons, and why it is lost, if so."""

    index: int
    name: str
    uuid: str
    unavailable: dict[str, str]
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Nvml:
    """NVML and its GPUs."""

    library: str  # its path, or ``""``
    driver: str  # version of the driver, or ``""``
    gpus: tuple[GpuCheck, ...]  # the GPUs
    error: str  # why there are no figures, or ``""``


def read_nvml(library: Path | None = None) -> Nvml:
    """Query NVML for everything, in a thread, so that a hanging call becomes an error text."""
    sampler = nvml.NvmlSampler(_ROUND_S, library)
    try:
        sampler.wait_opened(_PATIENCE_S)
    except nvml.NvmlError as error:
        return Nvml(mapped_library("libnvidia-ml.so"), "", (), str(error))
    sampler.wait_complete(_PATIENCE_S)
    sample = sampler.latest()
    sampler.close()
    path = mapped_library("libnvidia-ml.so")
    if not sampler.answered:
        return Nvml(path, sampler.driver, (), f"NVML did not answer within {_PATIENCE_S:g} s")
    gpus = tuple(
        GpuCheck(row["index"], row["name"], row["uuid"], dict(row["unavailable"]), row["lost"])
        for row in sample.data["gpus"]
    )
    return Nvml(path, sampler.driver, gpus, sample.data["error"])


def _gpu_facts(gpu: GpuCheck) -> list[Fact]:
    by_reason: dict[str, list[str]] = {}
    for key, reason in gpu.unavailable.items():
        by_reason.setdefault(reason, []).append(key)
    if gpu.lost:
        who = " ".join(filter(None, (gpu.name, gpu.uuid)))
        return [note(f"GPU {gpu.index} {who}: all figures n/a: {gpu.lost}")]
    facts = [ok(f"GPU {gpu.index} {gpu.name} {gpu.uuid}")]
    facts += [note(f"GPU {gpu.index} n/a: {', '.join(keys)}: {why}") for why, keys in by_reason.items()]
    return facts


def nvml_section(found: Nvml, distribution: Distribution) -> Section:
    """Return the lines about NVML, none of which blocks: calls and switches are traced without it."""
    facts = []
    if found.driver:
        facts.append(ok(f"driver {found.driver}, {found.library}"))
    if found.error:
        fix = "nvidia-smi has more; dmesg | grep -i xid" if found.driver else distribution.install_driver
        facts.append(missing(found.error, fix, blocks=False))
    for gpu in found.gpus:
        facts += _gpu_facts(gpu)
    if found.driver and not found.gpus and not found.error:
        facts.append(missing("NVML knows no GPU", "nvidia-smi -L; in a container: --gpus all", blocks=False))
    return Section("nvml", tuple(facts), asdict(found))
