"""What observes answers when it is interrupted, and names a program that made no CUDA call."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.demo.workload import words_of
from gputop.simgpu import library_build
from replay.reader import SessionReader
from tests.cli_support import run
from tests.gputop_command import GPUTOP, GPUTOP_APART
from tests.processes import children
from tests.waiting import HANGS_S, wait_until

pytestmark = pytest.mark.ebpf


def working(done: Path) -> list[str]:
    """A program that waits for its input, then writes a file and sleeps."""
    words = shlex.join(words_of("dataloader", 1.5))
    return ["sh", "-c", f"{words}; touch {shlex.quote(str(done))}; exec sleep 600"]


@contextmanager
def observed(
    words: list[str], done: Path, program: tuple[str, ...] = GPUTOP
) -> Iterator[subprocess.Popen[str]]:
    """gputop over such a program, once it has worked."""
    library_build.ensure_built()
    process = subprocess.Popen(
        [*program, *words, "--", *working(done)],
        env=library_build.environment(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(done.exists, "the program's work")
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupted(
    words: list[str], folder: Path, number: signal.Signals = signal.SIGINT
) -> subprocess.CompletedProcess[str]:
    """How it ends by a signal after the program's work."""
    with observed(words, folder / "done") as process:
        process.send_signal(number)
        output, errors = process.communicate(timeout=HANGS_S)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)


def test_an_interrupt_of_explain_is_answered_with_what_was_seen(tmp_path: Path) -> None:
    done = interrupted(["explain"], tmp_path)
    assert done.returncode == 130
    assert re.search(r"GPU.*idle", done.stdout), "whatever it lost while this machine was busy"
    assert "gputop: interrupted: this covers the " in done.stderr
    assert "! interrupted: this covers the " in done.stdout, "also where only the page is kept"


def test_a_signal_to_end_is_answered_too_and_json_says_that_it_is_of_a_part(tmp_path: Path) -> None:
    done = interrupted(["explain", "--json"], tmp_path, signal.SIGTERM)
    report = json.loads(done.stdout)
    assert done.returncode == 143
    assert report["span_ns"] > 0
    assert report["notes"][0].startswith("interrupted: this covers the ")


def test_an_interrupt_of_one_frame_prints_the_frame(tmp_path: Path) -> None:
    done = interrupted(["--once", "--json", "--duration", "600"], tmp_path)
    frame = json.loads(done.stdout)
    assert done.returncode == 130
    assert frame["verdict"]["span_ns"] > 0
    assert frame["problems"][0].startswith("interrupted: ")


def test_an_interrupted_recording_is_whole_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "session"
    done = interrupted(["record", "-o", str(path)], tmp_path)
    assert "gputop: interrupted after " in done.stderr
    reader = SessionReader(path)
    reader.close()
    assert (len(reader.marks) > 2, reader.problems) == (True, [])


def test_an_interrupt_before_anything_is_seen_says_so(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*GPUTOP_APART, "explain", "--duration", "600", "--", "sleep", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: children(process.pid), "the program to be forked")  # long before probes are attached
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=HANGS_S)
    assert (process.returncode, output) == (130, "")
    assert errors == "gputop: interrupted before anything was observed\n"


# -- programs that make no CUDA call ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (["sh", "-c", "echo lost >&2; exit 3"], "ended with status 3"),
        (["true"], "ended with status 0"),
        (["sh", "-c", "kill -SEGV $$"], "was killed by SIGSEGV"),
        (["sh", "-c", "sh -c 'exit 7'; exit $?"], "ended with status 7"),
        (["sh", "-c", "exit 139"], "ended with status 139"),
    ],
)
def test_explain_says_how_a_program_without_cuda_ended(command: list[str], how: str) -> None:
    done = run("explain", "--", *command)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{' '.join(command[:3])} {how} after 0." in done.stderr
    assert "without a CUDA call" in done.stderr


def test_a_program_that_goes_on_is_named() -> None:
    done = run("explain", "--duration", "0.5", "--json", "--", "sleep", "7.25")
    assert done.returncode == 1
    assert json.loads(done.stdout)["findings"] == []
    assert "sleep 7.25 made no CUDA call in 0." in done.stderr
    assert "sleep 7.25 keeps running as process " in done.stderr


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A shell, whose child is a shell, whose child uses CUDA."""
    library_build.ensure_built()
    words = shlex.join(words_of("healthy", 600))
    process = subprocess.Popen(
        ["sh", "-c", f"sh -c {shlex.quote(words + '; true')}; true"],
        env=library_build.environment(os.environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _user_of_cuda(pid: int) -> int:
    """The descendant that has the runtime mapped, once it has."""
    found: list[int] = []

    def look() -> bool:
        left = [str(pid)]
        while left:
            one = left.pop()
            left += children(int(one))
            if "libcudart" in Path(f"/proc/{one}/maps").read_text():
                found.append(int(one))
        return bool(found)

    wait_until(look, "the program to load CUDA")
    return found[0]


def test_explain_of_a_shell_names_the_grandchild_and_explain_of_that_explains(
    shell: subprocess.Popen[bytes],
) -> None:
    user = _user_of_cuda(shell.pid)
    (middle,) = children(shell.pid)
    name = Path(f"/proc/{user}/comm").read_text().strip()
    told = run("explain", "--pid", str(shell.pid))
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == (
        f"gputop: process {shell.pid} (sh) maps no CUDA library; its descendant {user} ({name}) does: "
        f"--pid {user}\n"
    )
    assert f"its child {user} ({name}) does" in run("explain", "--pid", middle).stderr
    # "316 steps of 9ms", or with long ones among them "316 steps, 3s together"
    assert re.search(r"\d steps( of|,) ", run("explain", "--duration", "2", "--pid", str(user)).stdout)


def test_explain_of_a_process_without_cuda_says_so() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    done = run("explain", "--duration", "0.3", "--pid", str(sleeper.pid))
    sleeper.kill()
    sleeper.wait()
    assert done.returncode == 1
    assert "maps no CUDA library, nor does any of its children" in done.stderr
