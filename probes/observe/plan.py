"""What a live source is to observe, and with which rights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from probes.inside.annotation_socket import Bound
from probes.process.privileges import Capability

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What to observe.

    Attributes:
        pids: Processes to watch with their descendants; None for every process that calls CUDA.
        rate_hz: Marks per second.
        ring_bytes: Size of the ring buffer, a power of two.
        environment: Environment of the command to come, for its library search path.
        interpreters: Prefixes of Python installations whose wheels may be used.
        program: File of the command to come, which may have the CUDA runtime inside.
        nvml_library: NVML library to load instead of the system's.
        lines: Calls whose line of Python is looked for: one of ``loader.LINES``.
        lines_later: ``start`` does not wait until lines are known, see ``LiveSource.ready``.
        problems: What cannot be observed, as far as it is known before: sentences.
        also_needs: Capabilities that this process needs for something else than observing; it gives up all
            others, for ever. None where it is not gputop's own process: then it keeps what it has.
        daemon: Nothing but observing and answering is done here: other system calls are refused, for ever.
        inside: The library that the command's CUDA driver loads (``--inside``), which is heard then.
        annotations: Where programs name ranges; closed at the end.
        poll_s: How often the ring is read; the kernel never wakes us (docs/probes.md).
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
