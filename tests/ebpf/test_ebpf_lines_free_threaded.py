"""Lines of Python without the GIL: each thread has bytecode of its own, and code comes and goes meanwhile.

The Pythons are those that scripts/free_threaded.sh has built; skipped where they are not there, in CI too.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.ebpf.interpreters import interpreter
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop
from tests.ebpf.told_lines import (
    Line,
    assert_all_right,
    counted,
    known,
    meetings,
    reads_its_input,
    recorded,
    seen,
)
from tests.waiting import HANGS_S, wait_until

# a recorder that waits for others' tests finds its ring of stacks full, and lines are unknown
pytestmark = [pytest.mark.ebpf, pytest.mark.timed]

VERSIONS = (pytest.param("13t", marks=pytest.mark.long), "14t")
LINES, ODD = str(PROGRAMS / "python_lines.py"), str(PROGRAMS / "python_odd.py")
THREADS = str(PROGRAMS / "free_threads.py")


def python(version: str) -> str:
    """The interpreter."""
    found = interpreter(version)
    if found is None:
        pytest.skip(f"no Python 3.{version} in the user's cache: scripts/free_threaded.sh builds it")
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Recorded]:
    """All programs in one recording."""
    found = {version: path for version in ("13t", "14t") if (path := interpreter(version))}
    words = {
        "lines": [LINES, "10", "child"],
        "odd": [ODD, "traced", "destructors", "signals", "threads", "names", "long"],
        "threads": [THREADS, "6", "150"],
    }
    programs = meetings(found.values())
    for version, path in found.items():
        programs |= {f"{version} {name}": [path, *given] for name, given in words.items()}
    if not found:
        return {}
    runs = recorded(tmp_path_factory.mktemp("free"), programs)
    return {(version, name): runs[f"{version} {name}"] for version in found for name in words}


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_a_started_program_and_its_children(version: str, runs: dict[tuple[str, str], Recorded]) -> None:
    python(version)
    assert_all_right(runs[version, "lines"], 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_odd_ways_into_a_line(version: str, runs: dict[tuple[str, str], Recorded]) -> None:
    python(version)
    assert_all_right(runs[version, "odd"], 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_threads_that_run_at_once(version: str, runs: dict[tuple[str, str], Recorded]) -> None:
    """All run the same functions; some make code and drop it."""
    python(version)
    run = runs[version, "threads"]
    assert run.said[0]["gil"] is False
    assert_all_right(run, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_that_runs_already(version: str, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    program = subprocess.Popen(
        [python(version), LINES, "10", "late"], env=workshop.environment(), stdin=subprocess.PIPE
    )
    wait_until(lambda: reads_its_input(program.pid), "the program to be ready")
    recorder = workshop.start(["--pid", str(program.pid)])
    wait_until(lambda: known(workshop), "the recording")
    program.communicate(b"go\n", timeout=HANGS_S)
    assert_all_right(workshop.finish(recorder), 1)


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_code_that_took_the_place_of_other_code_is_never_mistaken_for_it(
    version: str, tmp_path: Path
) -> None:
    """Also after tens of thousands of times; what there was no room to tell is counted."""
    run = Workshop(tmp_path, lines="slow").record(python(version), ODD, "freed")
    process = run.process(run.said[0]["pid"])
    made: Counter[Line] = sum((counted(line["lines"]) for line in run.said), Counter())
    assert not seen(process) - made, "no line has more calls than were made there"
    assert seen(process).total() + process["unknown_lines"] == made.total()
    assert seen(process).total() > 1000
