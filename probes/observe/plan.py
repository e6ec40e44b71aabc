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
    """The parameters of a live source."""

    # processes to watch with their descendants; None for every process that calls CUDA
    pids: tuple[int, ...] | None = None
    rate_hz: float = 4.0  # marks per second
    ring_bytes: int = 16 << 20  # size of the ring buffer, a power of two
    # environment of the command to come, for its library search path
    environment: Mapping[str, str] = field(default_factory=dict)
    interpreters: tuple[Path, ...] = ()  # prefixes of Python installations whose wheels may be used
    program: Path | None = None  # file of the command to come, which may have the CUDA runtime inside
    nvml_library: Path | None = None  # NVML library to load instead of the system's
    problems: tuple[str, ...] = ()  # sentences about parts that cannot be observed, as far as known before
    lines: str = "slow"  # calls whose line of Python is recorded: one of ``loader.LINES``
    lines_later: bool = False  # ``start`` does not wait until lines are known, see ``LiveSource.ready``
    # capabilities that this process needs beside observing; it gives up all others, for ever. None where it
    # is not gputop's own process: then it keeps all
    also_needs: frozenset[Capability] | None = None
    daemon: bool = False  # the process only observes and answers: other system calls are refused, for ever
    # the library that the command's CUDA driver loads (``--inside``), whose messages are read then
    inside: Path | None = None
    annotations: Bound | None = None  # where programs name ranges; closed at the end
    # interval of reading the ring, which the kernel does not announce (docs/probes.md)
    poll_s: float = POLL_S
