"""Lines of interpreters that are built, entered or left in odd ways: right, or unknown and counted."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import skip_or_fail
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop, compile_program
from tests.ebpf.told_lines import (
    Line,
    assert_all_right,
    counted,
    known,
    meetings,
    python,
    reads_its_input,
    recorded,
    seen,
)
from tests.waiting import HANGS_S, wait_until

# a recorder that waits for others' tests finds its ring of stacks full, and lines are unknown
pytestmark = [pytest.mark.ebpf, pytest.mark.timed]

PROGRAM = str(PROGRAMS / "python_odd.py")
NEWEST = 15
EARLIER = [pytest.param(minor, marks=pytest.mark.long) for minor in (10, 13, 14)]


def truth(run: Recorded) -> Counter[Line]:
    """What the interpreters of the one process counted, each for itself."""
    return sum((counted(line["lines"]) for line in run.said), Counter())


ODD = ("traced", "destructors", "signals", "threads", "names", "long")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """Both in one recording."""
    folder = tmp_path_factory.mktemp("odd")
    keys = compile_program("late_keys.c", folder, "-shared", "-fPIC", output="keys.so")
    programs = meetings([python(NEWEST), python(11)]) | {
        "odd": [python(NEWEST), PROGRAM, *ODD],
        "compiled": ["env", "PYTHON_JIT=1", python(NEWEST), PROGRAM, "often"],
        "late key": ["env", f"LD_PRELOAD={keys}", python(11), PROGRAM, "destructors"],
    }
    return recorded(folder, programs)


@pytest.mark.parametrize("minor", [*EARLIER, NEWEST])
def test_odd_ways_into_a_line(minor: int, runs: dict[str, Recorded], tmp_path: Path) -> None:
    own = Workshop(tmp_path, lines="slow")
    assert_all_right(runs["odd"] if minor == NEWEST else own.record(python(minor), PROGRAM, *ODD), 1)


def test_lines_of_a_loop_that_the_interpreter_compiles(runs: dict[str, Recorded]) -> None:
    assert_all_right(runs["compiled"], 1)


def test_code_that_took_the_place_of_other_code_is_never_mistaken_for_it(tmp_path: Path) -> None:
    """Also after tens of thousands of times; what there was no room to tell is counted."""
    run = Workshop(tmp_path, lines="slow").record(python(12), PROGRAM, "freed")
    process = run.process(run.said[0]["pid"])
    assert not seen(process) - truth(run), "no line has more calls than were made there"
    assert seen(process).total() + process["unknown_lines"] == truth(run).total()
    assert seen(process).total() > 1000


@pytest.mark.parametrize("minor", [11, pytest.param(NEWEST, marks=pytest.mark.long)])
def test_other_interpreters_of_the_process(minor: int, tmp_path: Path) -> None:
    """Before 3.12 a thread's slot does not say which of them it is in: unknown while there are several."""
    run = Workshop(tmp_path, lines="slow").record(python(minor), PROGRAM, "another")
    process = run.process(run.said[0]["pid"])
    assert not seen(process) - truth(run)
    assert seen(process).total() + process["unknown_lines"] == truth(run).total()
    assert process["unknown_lines"] == 0 or minor < 12
    assert seen(process).total() >= 4, "those after another one's end are known"


def test_an_interpreter_that_took_a_late_key(runs: dict[str, Recorded]) -> None:
    assert_all_right(runs["late key"], 1)


def embedder(minor: int, directory: Path) -> tuple[str, str]:
    """(A program with that Python in its own file, stripped; that Python's home)."""
    ask = "import json, sys, sysconfig; print(json.dumps([sys.prefix, sysconfig.get_config_vars()]))"
    told = subprocess.run([python(minor), "-c", ask], capture_output=True, text=True, check=True).stdout
    home, words = json.loads(told)
    library = Path(words["LIBPL"], f"libpython3.{minor}.a")
    if not library.exists():
        skip_or_fail(f"no {library.name} on this machine")
    flags = (f"-I{words['INCLUDEPY']}", "-Wno-deprecated-declarations", str(library), "-Wl,-E", "-s", "-lm")
    return str(compile_program("embedder.c", directory, *flags, output="app")), home


@pytest.mark.long
def test_a_stripped_program_with_python_in_its_own_file(tmp_path: Path) -> None:
    """Its second interpreter, after the end of the first, is known as well."""
    program = (*embedder(13, tmp_path), PROGRAM, "destructors", "threads")
    run = Workshop(tmp_path, lines="slow").record(*program)
    process = run.process(run.said[0]["pid"])
    assert seen(process) == truth(run)
    assert process["unknown_lines"] == 0


def test_such_a_program_that_runs_already_and_whose_file_is_gone(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    app, home = embedder(11, tmp_path)
    command = [app, home, PROGRAM, "destructors"]
    program = subprocess.Popen(command, env=workshop.environment(), stdin=subprocess.PIPE)
    wait_until(lambda: reads_its_input(program.pid), "the interpreter's start")
    Path(app).unlink()
    recorder = workshop.start(["--pid", str(program.pid)])
    wait_until(lambda: known(workshop), "the recording")
    program.communicate(timeout=HANGS_S)
    run = workshop.finish(recorder)
    process = run.process(program.pid)
    assert seen(process) == truth(run)
    assert process["unknown_lines"] == 0
