"""Runs a story under ``gputop record``: recording, the simulated GPU's trace, the program's own clock."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputop.simgpu import environment as simulated
from probes.proc.procfs import descendants
from tests.faults import priority
from tests.gputop_command import GPUTOP
from tests.simgpu_programs import cuda_toolkit
from tests.stories import installed
from tests.stories.catalogue import Story
from tests.stories.delays import Delays
from tests.stories.shim import build

TIMEOUT_S = 180.0
# it ends with us, also when we are killed: else it would compute beside all that is measured afterwards
_COMPUTES = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


_NO_CLOCK = {"warm_up": 5, "pid": 0}  # programs of others leave these out, and have names of their own:
_SHORT = {"begin": "began", "end": "ended", "delay": "delayed"}


class StoryError(Exception):
    """The program or the recorder failed."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run left.

    Attributes:
        clocks: Of each process of the story: units of work, ns that they took, when (CLOCK_MONOTONIC).
        seen_delayed: Of programs without a clock the share of the time in which a process of theirs waited
            for a CPU, by the kernel's count, read from outside.
    """

    story: Story
    seed: int
    folder: Path
    clocks: tuple[dict[str, int], ...]
    seen_delayed: float = 0.0

    @property
    def delayed(self) -> float:
        """The largest share of the loop in which threads of a process waited for a CPU, all added."""
        return max(
            (clock.get("delayed", 0) / clock["ns"] for clock in self.clocks), default=self.seen_delayed
        )

    @property
    def recording(self) -> Path:
        """The session file."""
        return self.folder / "run.gputop"

    @property
    def trace(self) -> Path:
        """What the GPU really did."""
        return self.folder / "trace"

    @property
    def unit_ns(self) -> float:
        """Time of a unit of work by the program's own clock, over its processes together; 0 without one."""
        return max((clock["ns"] / clock["units"] for clock in self.clocks), default=0.0)


def python_of(backend: str, kind: str = "torch") -> str:
    """The interpreter of a program: for PyTorch a CUDA wheel for ``cuda``, the CPU build for ``shim``."""
    if kind == "plain":
        return sys.executable
    if kind == "numba":
        folder = installed.numba()
        if folder is None:
            raise StoryError("no numba-cuda: make numba")
        return str(folder / "bin" / "python")
    folder = installed.wheel() if backend == "cuda" else installed.cpu_build()
    if folder is None:
        raise StoryError(f"no PyTorch for {backend}: make torch{'-cuda' if backend == 'cuda' else ''}")
    return str(folder / "bin" / "python")


def environment(story: Story, seed: int, seconds: float, folder: Path, backend: str) -> dict[str, str]:
    """Environment of recorder and program."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SIMGPU")}
    torch = installed.cpu_build()
    return kept | {
        "SIMGPU_STATE": str(folder / "state"),
        "SIMGPU_TRACE": str(folder / "trace"),
        "SIMGPU_DEVICES": str(story.ranks),
        "SOCKET": str(folder / "socket"),
        "SEED": str(seed),
        "SECONDS": str(seconds),
        **(build.settings(torch) if backend == "shim" and story.python == "torch" and torch else {}),
        **story.settings,
    }


def command_of(command: str, backend: str, story: Story) -> list[str]:
    """A story's command, or that of the program beside it, as it is started."""
    name, *arguments = command.split()
    if story.python == "native":
        return [str(_compiled(story.folder / name)), *arguments]
    return [python_of(backend, story.python), str(story.folder / name), *arguments]


def _compiled(source: Path) -> Path:
    """A program of C++ or CUDA, linked with the simulated runtime; it lies beside the libraries."""
    libraries = Path(simulated({})["LD_LIBRARY_PATH"].partition(":")[0])
    made = Path(tempfile.gettempdir()) / f"gputop-stories-{os.getpid()}" / source.stem
    if not made.exists():
        made.parent.mkdir(exist_ok=True)
        if source.suffix == ".cu":
            nvcc = cuda_toolkit.find().nvcc
            if nvcc is None:
                raise StoryError("no nvcc: pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-cuda-runtime")
            folder = nvcc.parents[1] / "include"
            command = [str(nvcc), "-allow-unsupported-compiler", "-cudart", "none", f"-I{folder}"]
            command += ["-Xcompiler", "-fno-omit-frame-pointer", "-Xcompiler", "-pthread"]
            runtime = ["-l:libcudart.so.13", "-Xlinker", "--allow-shlib-undefined"]
        else:
            command = ["g++", "-fno-omit-frame-pointer", "-pthread"]
            runtime = ["-l:libcudart.so.12", "-Wl,--allow-shlib-undefined"]
        done = subprocess.run(
            [*command, "-O1", "-g", "-o", str(made), str(source), f"-L{libraries}", *runtime],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise StoryError(f"{source.name} does not compile: {done.stderr[-600:]}")
    return made


@contextlib.contextmanager
def busy_processors(count: int) -> Iterator[None]:
    """So many processes of nobody's family compute all the time."""
    started = [subprocess.Popen([sys.executable, "-c", _COMPUTES]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _beside(story: Story, env: dict[str, str], backend: str) -> Iterator[None]:
    """The second program, until the first is done."""
    if not story.beside:
        yield
        return
    longer = simulated(env | {"SECONDS": "600", "PYTHONUNBUFFERED": "1"})
    said = Path(env["SIMGPU_TRACE"]).with_name("beside.txt")
    with said.open("w") as printed:
        command = command_of(story.beside, backend, story)
        program = subprocess.Popen(command, env=longer, stdout=printed, start_new_session=True)
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not said.stat().st_size and time.monotonic() < deadline:
            time.sleep(0.05)  # until it is warm: what it says first, it says after its first step
        yield
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()


def record(
    story: Story,
    seed: int,
    folder: Path,
    seconds: float = 5.0,
    backend: str = "shim",
    flags: tuple[str, ...] = (),
) -> Run:
    """Runs a story once, with further flags of ``gputop record``; everything it leaves is in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    env = environment(story, seed, seconds, folder, backend)
    command = command_of(story.command, backend, story)
    with _beside(story, env, backend):
        recorder = subprocess.Popen(
            [*GPUTOP, "record", "--simgpu", *flags, "-o", str(folder / "run.gputop"), "--", *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: priority.own_session(priority.RECORDER),
        )
        try:
            with Delays(recorder.pid) as delays:
                printed, errors = recorder.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            for pid in (recorder.pid, *descendants((recorder.pid,))):  # the program has its own session
                os.kill(pid, signal.SIGKILL)
            raise StoryError(f"{story.name}: not done in {TIMEOUT_S:.0f} s") from None
    (folder / "errors.txt").write_text(errors)
    (folder / "printed.txt").write_text(printed)
    clocks = tuple(_clocks(printed)) if story.clocked else ()
    if recorder.returncode != 0 or len(clocks) != (story.ranks if story.clocked else 0):
        raise StoryError(f"{story.name}: status {recorder.returncode}: {errors[-1500:]}")
    (folder / "clock.json").write_text(json.dumps({"clocks": clocks, "delayed": delays.share}))
    return Run(story, seed, folder, clocks, delays.share)


def _clocks(printed: str) -> Iterator[dict[str, Any]]:
    for found in re.finditer(r'\{"units"', printed):  # of several processes two may share a line
        clock, _end = json.JSONDecoder().raw_decode(printed, found.start())
        yield _NO_CLOCK | {_SHORT.get(key, key): value for key, value in clock.items()}
