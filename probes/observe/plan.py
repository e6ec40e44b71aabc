"""The plan of a live source: what to observe, and with which rights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from probes.inside.annotation_socket import Bound
from probes.process.privileges import Capability

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class LivePlan:
    """The parameters of a live source.

    Attributes:
        pids: Processes to watch with their descendants; None for every process that calls CUDA.
        rate_hz: Marks per second.
        ring_bytes: Size of the ring buffer, a power of two.
        environment: Environment of the command to come, for its library search path.
        interpreters: Prefixes of Python installations whose wheels may be used.
        program: File of the command to come, which may have the CUDA runtime inside.
        nvml_library: NVML library to load instead of the system's.
        lines: Calls whose line of Python is recorded: one of ``loader.LINES``.
        lines_later: ``start`` does not wait until lines are known, see ``LiveSource.ready``.
        problems: Sentences about parts that cannot be observed, as far as known before.
        also_needs: Capabilities that this process needs beside observing; it gives up all
            others, for ever. None where it is not gputop's own process: then it keeps all.
        daemon: The process only observes and answers: other system calls are refused, for ever.
        inside: The library that the command's CUDA driver loads (``--inside``), whose messages are read then.
        annotations: Where programs name ranges; closed at the end.
        poll_s: Interval of reading the ring, which the kernel does not announce (docs/probes.md).
    """

    pids: tuple[int, ...] | None = None
    rate_hz: float = 4.0
    ring_bytes: int = 16 << 20
    environment: Mapping[str, str] = field(default_factory=dict)
    interpreters: tuple[Path, ...] = ()
    program: Path | None = None
    nvml_library: Path | None = None
    problems: tuple[str, ...] = ()
    lines: str = "slow"
    lines_later: bool = False
    also_needs: frozenset[Capability] | None = None
    daemon: bool = False
    inside: Path | None = None
    annotations: Bound | None = None
    poll_s: float = POLL_S
