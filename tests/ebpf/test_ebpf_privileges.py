"""What root may do and gputop need not is given up; all of its work is done, and its command keeps all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.simgpu import environment
from probes.process import realtime
from probes.process.privileges import DRIVER, FILES, OBSERVING, SIGNALS, Capability
from probes.source import FRAMES, NOTE, PROCESS
from tests.ebpf.growing import has, marks, samples
from tests.ebpf.recording import Workshop, library
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf

RUNTIME = "libcudart.so.12"
NOBODY = 65534
RIGHTS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs")
# opens a library that nobody knows, takes its file away, and calls until it is told to end
STRANGER = """
import ctypes, os, sys, time
path, go, end = sys.argv[1:]
print("ready", flush=True)
while not os.path.exists(go):
    time.sleep(0.01)
cuda = ctypes.CDLL(path)
os.unlink(path)
def call():
    cuda.cudaDeviceSynchronize()
while not os.path.exists(end):
    call()
    time.sleep(0.001)
"""
CALLS = """
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcudart.so.12")
def call():
    cuda.cudaDeviceSynchronize()
while not os.path.exists(sys.argv[1]):
    call()
    time.sleep(0.001)
"""


def status(file: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in file.read_text().splitlines())
    return {key: value.strip() for key, _, value in lines}


def rights(file: Path) -> tuple[str, ...]:
    found = status(file)
    return tuple(found[key] for key in RIGHTS)


def mask(capabilities: frozenset[Capability]) -> str:
    return f"{sum(1 << one for one in capabilities):016x}"


def threads(pid: int) -> dict[int, tuple[str, ...]]:
    return {int(task.name): rights(task / "status") for task in Path(f"/proc/{pid}/task").iterdir()}


def confined(kept: frozenset[Capability]) -> tuple[str, ...]:
    own = int(status(Path("/proc/self/status"))["CapEff"], 16)
    if kept != DRIVER and not own >> Capability.SYS_RESOURCE & 1:  # its limits cannot be raised instead
        kept |= {Capability.SYS_NICE, Capability.IPC_LOCK}
    held = f"{int(mask(kept), 16) & own:016x}"
    return ("0" * 16, held, held, held, "1")


@contextmanager
def stranger(folder: Path) -> Iterator[tuple[int, Path, Path, Path]]:
    """A program of another user's, its library in a closed folder: (pid, library, go, end)."""
    home = folder / "home"
    home.mkdir()
    path, go, end = home / RUNTIME, folder / "go", folder / "end"
    path.write_bytes(Path(library(RUNTIME)).read_bytes())
    for made in (home, path):
        os.chown(made, NOBODY, NOBODY)
        made.chmod(0o700)
    state = {"SIMGPU_STATE": str(home / "state"), "SIMGPU_INIT_MS": "0", "CUDA_VISIBLE_DEVICES": "0,7"}
    env = environment(os.environ) | state
    rights = "+dac_read_search"  # this interpreter may lie in root's home
    process = subprocess.Popen(
        [
            *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
            *(f"--inh-caps={rights}", f"--ambient-caps={rights}"),
            *(sys.executable, "-c", STRANGER, str(path), str(go), str(end)),
        ],
        env=env,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid, path, go, end
    finally:
        process.kill()
        process.communicate()


def test_every_thread_has_what_observing_takes_and_no_more_and_the_command_has_all(tmp_path: Path) -> None:
    workshop, said = Workshop(tmp_path, lines="slow"), tmp_path / "status"
    end = tmp_path / "end"
    words = [sys.executable, "-c", CALLS, str(end)]
    script = f'cat /proc/self/status > {said}; exec "$@"'
    recorder = workshop.start(["--", "sh", "-c", script, "sh", *words])
    try:
        wait_until(lambda: has(workshop.file, FRAMES, "'call'"), "a line of the program")
        found = threads(recorder.pid)
    finally:
        end.touch()
        workshop.finish(recorder)
    kept = confined(OBSERVING | SIGNALS | FILES)
    assert found.pop(recorder.pid) == kept
    assert sorted(set(found.values())) == sorted({kept, confined(DRIVER)})
    assert list(found.values()).count(confined(DRIVER)) == 1, "NVML's thread"
    assert rights(said) == rights(Path("/proc/self/status"))


def test_a_later_library_of_another_user_is_attached_to_and_its_lines_are_known_with_what_is_kept(
    tmp_path: Path,
) -> None:
    """By its mapping alone: its folder is closed, its file is gone, and the process is somebody else's."""
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    workshop = Workshop(tmp_path, lines="slow")
    with stranger(tmp_path) as (pid, path, go, end):
        recorder = workshop.start(["--pid", str(pid)])
        try:
            wait_until(lambda: any(True for _ in samples(workshop.file)), "the recording")
            nice = os.getpriority(os.PRIO_PROCESS, recorder.pid)
            go.touch()
            wait_until(lambda: has(workshop.file, NOTE, "are traced", str(path)), "the library")
            wait_until(lambda: has(workshop.file, FRAMES, "'call'"), "a line of its calls")
            assert has(workshop.file, PROCESS, str(pid), "0,7"), "a variable of its environment"
            found, seen = threads(recorder.pid), marks(workshop.file)
            # that line may have been met by a sample before the library was traced
            wait_until(lambda: marks(workshop.file) > seen + 1, "calls")
        finally:
            end.touch()
            run = workshop.finish(recorder)
    assert confined(OBSERVING | FILES) in found.values()
    assert nice == realtime.NICE, "the thread that reads is in time"
    assert run.counts(pid)["cudaDeviceSynchronize"] > 0
