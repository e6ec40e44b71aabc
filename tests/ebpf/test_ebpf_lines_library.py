"""Lines of programs that have Python in a library: there from their start, or opened later.

Variables of threads then lie elsewhere: at one place in all threads, or in each thread anywhere.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import skip_or_fail
from tests.ebpf.interpreters import library, skip_without
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop, compile_program
from tests.ebpf.told_lines import MEET, assert_all_right, known, reads_its_input, recorded
from tests.waiting import HANGS_S, wait_until

# a recorder that waits for others' tests finds its ring of stacks full, and lines are unknown
pytestmark = [pytest.mark.ebpf, pytest.mark.timed]

PROGRAM = str(PROGRAMS / "python_lines.py")
MINORS = (14, 15)  # the state of a thread is under a key, and in a variable
WAYS = ("opened", "from the start")


def command(minor: int, way: str, folder: Path) -> list[str]:
    """A program that becomes that Python, unpacked with the libraries that it was built for."""
    path = library(minor)
    if path is None:
        skip_without(minor, f"libpython3.{minor}")
    loader = path.parents[3] / "usr/lib64/ld-linux-x86-64.so.2"
    if not loader.exists():
        skip_or_fail(f"{path} has no loader of its own")
    flags = (f"-Wl,--dynamic-linker={loader}", f"-Wl,--disable-new-dtags,-rpath,{path.parent}")
    made = compile_program("opens_python.c", folder, *flags, output=f"app{minor}")
    given = [f"LD_PRELOAD={path}"] if way == "from the start" else []
    return ["env", f"PYTHONHOME={path.parents[2]}", *given, str(made), str(path)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """All in one recording."""
    folder = tmp_path_factory.mktemp("library")
    programs = {}
    for minor in MINORS:
        programs[f"meets {minor}"] = [*command(minor, "opened", folder), "-c", MEET]
        for way in WAYS:
            programs[f"{minor} {way}"] = [*command(minor, way, folder), PROGRAM, "3"]
    return recorded(folder, programs)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("minor", MINORS)
def test_a_program_that_has_python_in_a_library(minor: int, way: str, runs: dict[str, Recorded]) -> None:
    assert_all_right(runs[f"{minor} {way}"], 1)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_such_a_program_that_runs_already(way: str, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    program = subprocess.Popen(
        [*command(MINORS[-1], way, tmp_path), PROGRAM, "3", "late"],
        env=workshop.environment(),
        stdin=subprocess.PIPE,
    )
    wait_until(lambda: reads_its_input(program.pid), "the program to be ready")
    recorder = workshop.start(["--pid", str(program.pid)])
    wait_until(lambda: known(workshop), "the recording")
    program.communicate(b"go\n", timeout=HANGS_S)
    assert_all_right(workshop.finish(recorder), 1)
