"""Every call of a Python program carries the line that made it: as many from each as the program counts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from probes.schema import Kind
from probes.source import FRAMES, PLACES, PROBLEM, Sample
from replay.coding.file_format import SessionError
from replay.reader import SessionReader
from tests.conftest import skip_or_fail
from tests.ebpf.bpf_objects import others_probe
from tests.ebpf.growing import has
from tests.ebpf.interpreters import interpreter
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop
from tests.ebpf.told_lines import (
    STAYS_S,
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

MINORS = (10, 11, 12, 13, 14, 15)
OLDEST_AND_NEWEST = (pytest.param(MINORS[0], marks=pytest.mark.long), MINORS[-1])
PROGRAM, HOT = str(PROGRAMS / "python_lines.py"), str(PROGRAMS / "hot_line.py")


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """Programs under each Python requested, in an environment, in a namespace; all in one recording."""
    folder = tmp_path_factory.mktemp("lines")
    each, chosen = (
        test_a_started_program_and_its_children.__name__,
        {one.name for one in request.session.items},
    )
    asked = {minor for minor in MINORS if f"{each}[{minor}]" in chosen} | {
        12,
        MINORS[-1],
    }  # of these are the others
    found = {minor: interpreter(minor) for minor in sorted(asked)}
    programs = meetings(filter(None, found.values()))
    programs |= {str(minor): [path, PROGRAM, "10", "child"] for minor, path in found.items() if path}
    if newest := interpreter(MINORS[-1]):
        programs["hot"] = [newest, HOT, "1"]
    if newer := interpreter(12):
        subprocess.run([newer, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
        programs["environment"] = [str(folder / "env/bin/python"), PROGRAM, "3"]
        if shutil.which("unshare"):
            programs["namespace"] = ["unshare", "-pf", "--mount-proc", newer, PROGRAM, "3"]
    return recorded(folder, programs, without=("namespace",))


def too_old() -> str:
    """An interpreter that gputop does not know; "" without one."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return str(next(iter(sorted(versions.glob("3.9.*/bin/python3"))), ""))


@pytest.mark.parametrize("minor", MINORS)
@pytest.mark.mainly("10", "12", "15")
def test_a_started_program_and_its_children(minor: int, runs: dict[str, Recorded]) -> None:
    python(minor)
    assert_all_right(runs[str(minor)], 3)


def test_a_virtual_environment(runs: dict[str, Recorded]) -> None:
    python(12)
    assert_all_right(runs["environment"], 1)


def test_a_pid_namespace(runs: dict[str, Recorded]) -> None:
    if "namespace" not in runs:
        skip_or_fail("no unshare, or no Python 3.12")
    run = runs["namespace"]
    (line,) = run.said
    assert line["pid"] == 1
    others = {told["pid"] for other in runs.values() for told in other.said}
    (process,) = [
        process
        for process in run.stats["processes"]
        if PROGRAM in {row["file"] for row in process["lines"]} and process["pid"] not in others
    ]
    assert seen(process) == counted(line["lines"])
    assert process["unknown_lines"] == 0


@pytest.mark.parametrize("minor", OLDEST_AND_NEWEST)
def test_a_program_that_runs_already(minor: int, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lines="slow")
    program = subprocess.Popen(
        [python(minor), PROGRAM, "10", "late"], env=workshop.environment(), stdin=subprocess.PIPE
    )
    wait_until(lambda: reads_its_input(program.pid), "the program to be ready")
    recorder = workshop.start(["--pid", str(program.pid)])
    wait_until(lambda: known(workshop), "the recording")
    program.communicate(b"go\n", timeout=HANGS_S)
    assert_all_right(workshop.finish(recorder), 1)


def test_a_program_under_way_is_never_wrong(tmp_path: Path) -> None:
    """What came before its interpreter was found is unknown and counted, all else is right."""
    workshop = Workshop(tmp_path, lines="slow")
    program = subprocess.Popen(
        [python(12), PROGRAM, "1", "endless"], env=workshop.environment(), stdin=subprocess.PIPE
    )
    recorder = workshop.start(["--pid", str(program.pid)])
    wait_until(lambda: known(workshop), "the recording")
    program.communicate(b"go\n", timeout=HANGS_S)
    run = workshop.finish(recorder)
    (line,) = run.said
    process = run.process(program.pid)
    told, found = counted(line["lines"]), seen(process)
    assert found.total() > 0
    assert not found - told, "no line has more calls than were made there"


@pytest.mark.long
def test_code_that_is_new_by_the_thousand_between_two_marks_is_known(tmp_path: Path) -> None:
    """It fills the ring of stacks twice, and frames of the screen are two seconds apart."""
    interpreter, many = python(12), 4_000
    programs = meetings([interpreter]) | {"new": [interpreter, str(PROGRAMS / "new_code.py"), str(many)]}
    workshop = Workshop(tmp_path, lines="slow")
    stays_s = STAYS_S[-1] if others_probe() else STAYS_S[0]
    run = workshop.record_all(programs, ("--simgpu", "--rate", "0.5"), STAYS_S=stays_s)["new"]
    (process,) = [row for row in run.stats["processes"] if row["lines"]]
    assert process["unknown_lines"] == 0
    assert sum(line["count"] for line in process["lines"]) == many


def test_lines_can_be_left_out(tmp_path: Path) -> None:
    run = Workshop(tmp_path, lines="off").record(sys.executable, PROGRAM, "1")
    process = run.process(run.said[0]["pid"])
    assert process["lines"] == process["waits"] == []
    assert process["unknown_lines"] == process["unknown_waits"] == 0
    assert not run.records(Kind.OFFCPU)["stack"].any()


def test_an_unknown_interpreter_says_so(tmp_path: Path) -> None:
    old = too_old()
    if not old:
        skip_or_fail("no Python 3.9 on this machine")
    workshop, pipe = Workshop(tmp_path, lines="slow"), tmp_path / "input"
    os.mkfifo(pipe)
    words = shlex.join([old, PROGRAM, "1", "late"])
    recorder = workshop.start(["--", "sh", "-c", f"exec {words} < {shlex.quote(str(pipe))}"])
    with os.fdopen(os.open(pipe, os.O_RDWR), "wb", buffering=0) as line:
        wait_until(
            lambda: has(workshop.file, PROBLEM, "lines of process", "CPython 3.9 is not known"), "the reason"
        )
        line.write(b"go\n")
        run = workshop.finish(recorder)
    process = run.process(run.said[0]["pid"])
    assert process["lines"] == []
    assert process["unknown_lines"] == sum(row[3] for row in run.said[0]["lines"])
    assert any("lines of process" in text and "3.9" in text for text in run.stats["problems"])


@pytest.mark.parametrize("minor", OLDEST_AND_NEWEST)
def test_between_two_calls_the_thread_is_met_where_it_computes(
    minor: int, runs: dict[str, Recorded], tmp_path: Path
) -> None:
    program = [python(minor), HOT, "1"]
    text = Path(HOT).read_text().splitlines()
    (hot,) = [row for row, line in enumerate(text, 1) if line.endswith("# hot")]
    newest = minor == MINORS[-1]
    run = runs["hot"] if newest else Workshop(tmp_path, lines="slow").record(*program)
    found = Counter(lines[0] for lines in met(run.path) if lines[0][0] == HOT)
    assert found.total() >= 20, "49 times a second of CPU time"
    assert {name for _, _, name in found} <= {"compute", "<module>"}
    assert found[HOT, hot, "compute"] >= 0.8 * found.total()


def met(path: Path) -> list[list[Line]]:
    """The stacks in which threads were met between two calls."""
    reader = SessionReader(path)
    samples = [item for item in reader.items() if isinstance(item, Sample)]
    reader.close()
    known: dict[int, list[Line]] = {}
    for sample in samples:
        if sample.kind == FRAMES:
            for stack, frames_of in zip(sample.data["stack"], sample.data["frames"], strict=True):
                known[stack] = [tuple(frame) for frame in frames_of]
    stacks = [stack for sample in samples if sample.kind == PLACES for stack in sample.data["stack"]]
    assert all(stack in known for stack in stacks)
    return [known[stack] for stack in stacks if known[stack]]


_BLOCKED = """
from cuda import Cuda

cuda = Cuda()


def inner():
    cuda.lib.cudaDeviceSynchronize(
    )


def outer():
    return [inner() for _ in range(1)]


cuda.launch(60_000_000_000)
outer()
"""


@pytest.mark.parametrize("minor", [pytest.param(11, marks=pytest.mark.long), 14])
def test_py_spy_agrees(minor: int, tmp_path: Path) -> None:
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        skip_or_fail("py-spy not found: pip install py-spy")
    source = tmp_path / "blocked.py"
    source.write_text(_BLOCKED)
    workshop = Workshop(tmp_path, lines="slow")
    recorder = workshop.start(["--", python(minor), str(source)])
    try:
        wait_until(lambda: frames(workshop.file, str(source)), "the stack")
        (ours,) = frames(workshop.file, str(source)).items()
        wait_until(lambda: dumped(spy, ours[0])[0][2].endswith("inner"), "the call")
        theirs = dumped(spy, ours[0])
    finally:
        for child in Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        workshop.finish(recorder, status=137)
    # which of the two has qualified names differs by version
    plain = [
        [(file, line, name.rpartition(".")[2]) for file, line, name in stack] for stack in (ours[1], theirs)
    ]
    assert plain[0] == plain[1]


def dumped(spy: str, pid: int) -> list[Line]:
    """The stack of a program's main thread, as py-spy sees it."""
    command = [spy, "dump", "--json", "--pid", str(pid)]
    dump = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [(frame["filename"], frame["line"], frame["name"]) for frame in dump[0]["frames"]]


def frames(path: Path, source: str) -> dict[int, list[Line]]:
    """pid -> the stack that ends in this file's function ``inner``; of a file that is being written."""
    try:
        reader = SessionReader(path)
    except SessionError:
        return {}
    found = {}
    for item in reader.items():
        if isinstance(item, Sample) and item.kind == FRAMES:
            for pid, stack in zip(item.data["pid"], item.data["frames"], strict=True):
                python = [tuple(frame) for frame in stack if frame[1]]  # those above are native code
                if python and python[0][0] == source and python[0][2] == "inner":
                    found[pid] = python
    reader.close()
    return found
