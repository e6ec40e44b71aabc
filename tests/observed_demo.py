"""A demo on the simulated GPU that is watched by real probes from its first call."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gputop.simgpu import library_build
from probes.observe.live_source import LiveSource
from probes.observe.plan import LivePlan

SLEEPS = {
    "SIMGPU_SYNC": "block"
}  # who waits for the GPU takes no CPU meanwhile: where that is not the question


@contextmanager
def observed(story: str) -> Iterator[LiveSource]:
    """A demo that is watched from its first call."""
    library_build.ensure_built()
    gate_in, gate_out = os.pipe()
    workload = subprocess.Popen(
        ["sh", "-c", f"read go; exec {sys.executable} -m gputop.demo {story} 60"],
        env=library_build.environment(os.environ) | SLEEPS,
        stdin=gate_in,
        stdout=subprocess.DEVNULL,
    )
    source = LiveSource(LivePlan(pids=(workload.pid,), environment=library_build.environment(os.environ)))
    try:
        source.start()
        os.write(gate_out, b"go\n")
        yield source
    finally:
        workload.kill()
        workload.wait()
        os.close(gate_in)
        os.close(gate_out)
