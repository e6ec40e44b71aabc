"""Runs a story under ``gputop record``: its recording, the simulated GPU's trace, and the program's own clock."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import priority
from tests.stories.catalogue import PROGRAMS, Story
from tests.stories.shim import build

GPUTOP = (sys.executable, "-m", "gputop")
TIMEOUT_S = 180.0


class StoryError(Exception):
    """The program or the recorder failed."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run left.

    Attributes:
        clocks: Of each process of the story: units of work, ns that they took, when (CLOCK_MONOTONIC).
    """

    story: Story
    seed: int
    folder: Path
    clocks: tuple[dict[str, int], ...]

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
        """Time of a unit of work by the program's own clock, over its processes together."""
        return max(clock["ns"] / clock["units"] for clock in self.clocks)


def environment(story: Story, seed: int, seconds: float, folder: Path) -> dict[str, str]:
    """Environment of recorder and program."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SIMGPU")}
    torch = build.torch_folder()
    if torch is None:
        raise StoryError("no CPU build of PyTorch: make torch")
    shim = build.settings(torch)
    shim["PYTHONPATH"] = os.pathsep.join([shim["PYTHONPATH"], str(PROGRAMS)])
    return kept | {
        "SIMGPU_STATE": str(folder / "state"),
        "SIMGPU_TRACE": str(folder / "trace"),
        "SOCKET": str(folder / "socket"),
        "SEED": str(seed),
        "SECONDS": str(seconds),
        **shim,
        **story.settings,
    }


def _command(command: str) -> list[str]:
    torch = build.torch_folder()
    assert torch is not None
    name, *arguments = command.split()
    return [str(torch / "bin" / "python"), str(PROGRAMS / name), *arguments]


@contextlib.contextmanager
def busy_processors(count: int) -> Iterator[None]:
    """So many processes of nobody's family compute all the time."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _beside(story: Story, env: dict[str, str]) -> Iterator[None]:
    """The second program, until the first is done."""
    if not story.beside:
        yield
        return
    longer = env | {"SECONDS": "600"}
    program = subprocess.Popen(
        _command(story.beside), env=_with_libraries(longer), stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()


def _with_libraries(env: dict[str, str]) -> dict[str, str]:
    from gputop.simgpu import environment as simulated

    return simulated(env)


def record(story: Story, seed: int, folder: Path, seconds: float = 5.0) -> Run:
    """Runs a story once; everything it leaves is in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    env = environment(story, seed, seconds, folder)
    command = _command(story.command)
    if story.ranks > 1:
        command = [command[0], str(PROGRAMS / "ranks.py"), str(story.ranks), *command[1:]]
    with _beside(story, env):
        recorder = subprocess.Popen(
            [*GPUTOP, "record", "--simgpu", "-o", str(folder / "run.gputop"), "--", *command],
            env=env | {"PYTHONPATH": env["PYTHONPATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: priority.own_session(priority.RECORDER),
        )
        try:
            printed, errors = recorder.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(recorder.pid, signal.SIGKILL)
            raise StoryError(f"{story.name}: not done in {TIMEOUT_S:.0f} s") from None
    (folder / "errors.txt").write_text(errors)
    (folder / "printed.txt").write_text(printed)
    clocks = tuple(_clocks(printed))
    if recorder.returncode != 0 or len(clocks) != story.ranks:
        raise StoryError(f"{story.name}: status {recorder.returncode}: {errors[-1500:]}")
    (folder / "clock.json").write_text(json.dumps(clocks))
    return Run(story, seed, folder, clocks)


def _clocks(printed: str) -> Iterator[dict[str, Any]]:
    for line in printed.splitlines():
        if line.startswith('{"units"'):
            yield json.loads(line)
