"""What tests without root share: becoming somebody else, programs to watch, frames of gputop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gputop.simgpu import library_build
from tests import inside
from tests.cli_support import run
from tests.ebpf.growing import marks
from tests.gputop_command import GPUTOP
from tests.simgpu_programs.harness import HERE
from tests.waiting import HANGS_S, wait_until

# not the system's nobody: each process that runs tests has one of its own, and who looks at all that nobody
# runs sees nothing of the others
NOBODY = 60_000 + os.getpid() % 5_000
UNSEEN = "CUDA calls and preempting threads are not shown"
# two threads of two processes on one CPU, both always busy, and in nobody's way but each other's
RIVALS = """
import os, sys, time
os.nice(19)
os.sched_setaffinity(0, {0})
os.fork()
end = time.monotonic() + 60
while time.monotonic() < end:
    pass
"""
CALLER = """
import os, sys, time
from cuda import Cuda
c = Cuda(); p = c.malloc(1 << 20)
print("ready", os.getpid(), flush=True)
time.sleep(float(sys.argv[1]))
for _ in range(1234):
    c.Memset(p, 0, 64)
time.sleep(60)
"""
# waits until it is told to call, and says when it has
TOLD_CALLER = """
import os, sys, time
from cuda import Cuda
c = Cuda(); p = c.malloc(1 << 20)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.005)
for _ in range(1234):
    c.Memset(p, 0, 64)
open(sys.argv[1] + ".done", "w")
time.sleep(60)
"""


def as_nobody(*more: str, number: int = NOBODY) -> tuple[str, ...]:
    """Becomes nobody, or who has this number; may read this checkout and interpreter in root's home."""
    rights = ",".join(f"+{name}" for name in ("dac_read_search", *more))
    ids = (f"--reuid={number}", f"--regid={number}", "--clear-groups")
    return ("setpriv", *ids, f"--inh-caps={rights}", f"--ambient-caps={rights}")


def mounted(script: str) -> tuple[str, ...]:
    """Runs a command in a mount namespace of its own after a line of shell."""
    return ("unshare", "--mount", "sh", "-c", f'{script}; exec "$@"', "sh")


def environment(home: Path) -> dict[str, str]:
    simulated = {"SIMGPU_STATE": str(home / "state"), "SIMGPU_INIT_MS": "0", "PYTHONPATH": str(HERE)}
    return library_build.environment(os.environ) | simulated | {"HOME": str(home)}


@contextmanager
def started(home: Path, *words: str, within: Sequence[str] = as_nobody()) -> Iterator[int]:
    """A Python program of nobody's; its number. One that says that it is ready is so by then."""
    process = subprocess.Popen(
        [*within, sys.executable, "-c", *words],
        env=environment(home),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        if 'print("ready"' in words[0]:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def frame(
    home: Path,
    *words: str,
    within: Sequence[str] = as_nobody(),
    program: Sequence[str] = (),
    env: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A frame as gputop prints it there; ``program`` starts it in another way than this interpreter."""
    started_by = tuple(program) or (*within, *GPUTOP)
    done = run("--once", "--json", *words, program=started_by, env=env or environment(home))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def recorded(home: Path, program: Sequence[str], env: dict[str, str] | None = None) -> dict[str, Any]:
    """The statistics of a recording of a program of nobody's that calls once it is observed."""
    file, go = home / "run.gputop", home / "go"
    with started(home, TOLD_CALLER, str(go)) as pid:
        words = ("record", "--lines", "off", "-o", str(file), "--pid", str(pid))
        recorder = subprocess.Popen([*program, *words], env=env or environment(home))
        try:
            wait_until(lambda: marks(file) > 0, "the recording")
            go.touch()
            wait_until(Path(f"{go}.done").exists, "the calls")
            told = marks(file)
            wait_until(lambda: marks(file) > told + 1, "what is told of them")
        finally:
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(timeout=HANGS_S) == 0
    found: dict[str, Any] = json.loads(inside.run("stats", "--json", str(file)).stdout)
    return found


def is_rootless(found: dict[str, Any], *words: str) -> bool:
    """Whether the frame is one without eBPF whose first problem holds these words."""
    assert found["calls_observed"] is False
    for word in (UNSEEN, *words):
        assert word in found["problems"][0]
    return True
