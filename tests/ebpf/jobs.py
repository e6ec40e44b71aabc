"""Programs on the simulated GPU beside which gputop comes and goes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.ebpf.recording import Workshop
from tests.waiting import HANGS_S, wait_until


@contextmanager
def running(workshop: Workshop, *command: object) -> Iterator[subprocess.Popen[bytes]]:
    """A program on the simulated GPU; it must end well."""
    process = subprocess.Popen([*map(str, command)], env=workshop.environment())
    try:
        wait_until(workshop.said, "the program to start")
        yield process
    except BaseException:
        process.kill()
        raise
    finally:
        status = process.wait(timeout=HANGS_S)
    assert status == 0
