"""Who holds a GPU's memory by NVML: the GPU of a process in a sample."""

from __future__ import annotations

from dataclasses import dataclass

from probes.source import Sample


@dataclass(frozen=True, slots=True)
class OnGpu:
    """The memory of a GPU in a sample of NVML, bytes: all of it, what is used, and who holds it."""

    total: int
    used: int
    holders: tuple[tuple[int, int], ...]  # process, bytes


def gpu_of(sample: Sample | None, pid: int) -> OnGpu | None:
    """The GPU of a process: the one that lists it, or the only one."""
    rows = [row for row in (sample.data.get("gpus") or () if sample else ()) if isinstance(row, dict)]
    found = [row for row in rows if any(int(one) == pid for one, _ in row.get("processes") or ())] or rows
    if len(found) != 1:
        return None
    total, used = found[0].get("memory_total_bytes"), found[0].get("memory_used_bytes")
    if not isinstance(total, int) or not isinstance(used, int):
        return None
    return OnGpu(
        total, used, tuple((int(one), int(size or 0)) for one, size in found[0].get("processes") or ())
    )
