"""Programs and libraries that come while gputop runs, or that lie where a path alone does not lead."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.simgpu import environment
from tests.conftest import skip_or_fail
from tests.ebpf.growing import marks, traced
from tests.ebpf.recording import Recorded, Workshop, compile_program, library
from tests.gputop_command import GPUTOP_APART
from tests.waiting import HANGS_S, until_good, wait_until

pytestmark = pytest.mark.ebpf

CALLS = 200
WANTED_MS = 100  # from the opening of a library to the first call that is seen
RUNTIME, DRIVER = "libcudart.so.12", "libcuda.so"


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_program("late.c", tmp_path_factory.mktemp("late")))


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with the runtime inside, and beside it the same one without symbols."""
    folder = tmp_path_factory.mktemp("static")
    program = compile_program("static_runtime.c", folder)
    subprocess.run(["strip", "-o", str(folder / "stripped"), str(program)], check=True)
    return program


def copied(folder: Path) -> str:
    """A copy of the runtime that nobody knows: a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.copy(library(RUNTIME), folder / RUNTIME)


class Machine(Workshop):
    """A workshop that watches the whole machine, and programs that run in it unasked."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, gputop=GPUTOP_APART)
        self.programs: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Starts a program beside gputop."""
        self.programs.append(subprocess.Popen(command, env=environment(self.env), start_new_session=True))
        return self.programs[-1]

    def wait_ready(self, count: int) -> None:
        """Waits until so many programs have said that they wait."""
        wait_until(lambda: len(self.said()) >= count, "programs to start")

    @property
    def traced(self) -> Path:
        """For which programs wait before they call."""
        return self.directory / "traced"

    def wait_traced(self, *libraries: str | Path) -> None:
        """Lets the programs call once gputop has attached to each of these: parts of paths."""
        wanted = Counter(map(str, libraries))

        def there() -> bool:
            found = traced(self.file)
            return all(sum(name in path for path in found) >= count for name, count in wanted.items())

        wait_until(there, "the libraries to be traced")
        self.traced.touch()

    @contextmanager
    def watching(self, *arguments: str) -> Iterator[list[Recorded]]:
        """Records around a block; the recording is in the list afterwards. Programs end in the block."""
        recorder = self.start(arguments)
        found: list[Recorded] = []
        try:
            wait_until(lambda: recorder.poll() is not None or marks(self.file) > 0, "the recorder to attach")
            yield found
            assert [program.wait(timeout=HANGS_S) for program in self.programs] == [0] * len(self.programs)
        finally:
            for program in self.programs:
                if program.poll() is None:
                    os.killpg(program.pid, signal.SIGKILL)  # a shell's programs, too
            if recorder.poll() is None:
                os.kill(recorder.pid, signal.SIGINT)
        found.append(self.finish(recorder))


def numbers(run: Recorded, pid: int, api: str, depth: int = 0) -> list[int]:
    """The numbers that a program gave its calls of an API: their bytes, in the order of the calls."""
    names, records = run.calls()
    mine = (records["pid"] == pid) & (records["op"] == names.index(api)) & (records["depth"] == depth)
    return [int(count) for count in records[mine]["bytes"]]


def first_ns(run: Recorded, pid: int, api: str) -> int:
    """When the first call of an API that was seen began."""
    names, records = run.calls()
    mine = records[(records["pid"] == pid) & (records["op"] == names.index(api))]
    return int((mine["t_end"] - mine["duration"]).min())


ALL = list(range(1, CALLS + 1))


def test_a_program_started_later_is_counted_from_its_first_call_when_its_library_was_known(
    tmp_path: Path, late: str
) -> None:
    machine = Machine(tmp_path)
    with machine.watching() as runs:
        programs = [machine.run(late, library(RUNTIME), str(CALLS + n), "") for n in range(2)]
    for extra, program in enumerate(programs):
        assert numbers(runs[0], program.pid, "cudaMemcpyAsync") == list(range(1, CALLS + extra + 1))
        assert numbers(runs[0], program.pid, "cudaMalloc") == [1 << 16]


@pytest.mark.parametrize("attached_to", ["the machine", "the process"])
@pytest.mark.timed
def test_a_library_nobody_knew_is_attached_to_within_100_ms_of_its_dlopen(
    tmp_path: Path, late: str, attached_to: str
) -> None:
    def latency_ms() -> float:
        """Of a gputop and a copy of the library that are both new."""
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        machine, go = Machine(folder), folder / "go"
        program = machine.run(late, copied(folder / "own"), str(CALLS), "", str(go))
        machine.wait_ready(1)
        flags = ("--pid", str(program.pid)) if attached_to == "the process" else ()
        with machine.watching(*flags) as runs:
            go.touch()
        (run,) = runs
        seen = numbers(run, program.pid, "cudaMemcpyAsync")
        missed = CALLS - len(seen)
        assert seen == ALL[missed:], "from the first one seen on, none is missing"
        if not seen:  # the program was at its end before
            return math.inf
        opened_ns = int(run.said[-1]["opened_ns"])
        found = (first_ns(run, program.pid, "cudaMemcpyAsync") - opened_ns) / 1e6
        print(f"attached to {attached_to}: {found:.1f} ms, {missed} calls before")
        return found

    def slowest_ms() -> float:
        """Of three: who only looks every quarter of a second is early now and then."""
        return max(latency_ms() for _ in range(3))

    assert until_good(slowest_ms, lambda found: found < WANTED_MS, seconds=15) < WANTED_MS


def test_calls_later_than_that_are_all_counted_also_in_a_program_started_later(
    tmp_path: Path, late: str
) -> None:
    machine = Machine(tmp_path)
    with machine.watching() as runs:
        program = machine.run(late, own := copied(tmp_path / "own"), str(CALLS), str(machine.traced))
        machine.wait_traced(own)
    assert numbers(runs[0], program.pid, "cudaMemcpyAsync") == ALL


def in_namespace(script: str, *command: str) -> Sequence[str]:
    """A command in a mount namespace of its own, after a script that prepares it."""
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-ec",
        f'{script}\nexec "$@"',
        "-",
        *command,
    ]


def test_two_copies_of_a_library_under_one_path_in_two_mount_namespaces_are_both_counted(
    tmp_path: Path, late: str
) -> None:
    """The file that gputop itself sees under that path is a third one, and no library at all."""
    place = tmp_path / "lib"
    place.mkdir()
    path = place / RUNTIME
    path.write_text("not what the programs have mapped")
    machine, programs = Machine(tmp_path), []
    with machine.watching() as runs:
        for number in range(2):
            copy = copied(tmp_path / f"copy{number}")
            command = [late, str(path), str(CALLS + number), str(machine.traced)]
            programs.append(machine.run(*in_namespace(f"mount --bind {copy} {path}", *command)))
        machine.wait_traced(path, path)
    for number, program in enumerate(programs):
        seen = numbers(runs[0], program.pid, "cudaMemcpyAsync")
        assert seen == list(range(1, CALLS + number + 1))


def test_one_library_below_two_overlays_is_not_counted_twice(tmp_path: Path, late: str) -> None:
    """As in two containers of one image: other devices, one file."""
    base = tmp_path / "base"
    base.mkdir()
    prepare = f"mount -t tmpfs none {base}; cd {base}; mkdir low a au aw b bu bw; cp {library(RUNTIME)} low"
    overlays = "".join(
        f"; mount -t overlay overlay -o lowerdir=low,upperdir={name}u,workdir={name}w {name}" for name in "ab"
    )
    if subprocess.run(in_namespace(prepare + overlays, "true"), capture_output=True).returncode:
        skip_or_fail("overlayfs cannot be mounted here")
    go, machine = tmp_path / "go", Machine(tmp_path)
    both = "; ".join(
        f"{late} {base}/{name}/{RUNTIME} {CALLS} {machine.traced} {go} & p{name}=$!" for name in "ab"
    )
    with machine.watching() as runs:
        machine.run(*in_namespace(f"{prepare}{overlays}; cd /; {both}; wait $pa; wait $pb", "true"))
        machine.wait_ready(2)
        go.touch()
        machine.wait_traced(base)
    pids = {line["pid"] for line in machine.said()}
    assert len(pids) == 2
    for pid in pids:
        assert numbers(runs[0], pid, "cudaMemcpyAsync") == ALL
        assert numbers(runs[0], pid, "cudaMemcpyAsync", depth=1) == []


@pytest.mark.long
def test_a_library_replaced_while_mapped_is_counted_in_the_old_program_and_in_the_new_one(
    tmp_path: Path, late: str
) -> None:
    machine = Machine(tmp_path)
    path = Path(copied(tmp_path / "lib"))
    old = machine.run("env", f"LD_PRELOAD={path}", late, str(path), str(CALLS), str(machine.traced))
    machine.wait_ready(1)
    Path(copied(tmp_path / "new")).rename(path)
    with machine.watching() as runs:
        new = machine.run(late, str(path), str(CALLS + 1), str(machine.traced))
        machine.wait_traced(path, path)
    assert numbers(runs[0], old.pid, "cudaMemcpyAsync") == ALL
    assert numbers(runs[0], new.pid, "cudaMemcpyAsync") == [*ALL, CALLS + 1]


def assert_both_layers(run: Recorded, pid: int, *, very_first: int = 0) -> None:
    """Each numbered runtime call is there, its driver call inside; and how many of the call before them."""
    assert numbers(run, pid, "cudaMalloc") == ALL
    assert numbers(run, pid, "cuMemAlloc", depth=1) == ALL
    assert run.nesting(pid, "cudaFree") == {False: CALLS + very_first}
    assert run.nesting(pid, "cuMemFree") == {True: CALLS}


def test_a_runtime_linked_into_the_command_is_counted_from_its_first_call(
    tmp_path: Path, static: Path
) -> None:
    run = Workshop(tmp_path).record(str(static), str(CALLS))
    assert_both_layers(run, run.said[0]["pid"], very_first=1)


def test_a_runtime_linked_into_a_program_is_found_when_the_program_loads_the_driver(
    tmp_path: Path, static: Path
) -> None:
    machine = Machine(tmp_path)
    with machine.watching() as runs:
        program = machine.run(str(static), str(CALLS), str(machine.traced))
        machine.wait_traced(static, DRIVER)
    assert_both_layers(runs[0], program.pid)


@pytest.mark.long
def test_a_runtime_linked_into_a_running_program_is_found_at_the_start(tmp_path: Path, static: Path) -> None:
    machine = Machine(tmp_path)
    program = machine.run(str(static), str(CALLS), str(machine.traced))
    machine.wait_ready(1)
    with machine.watching() as runs:
        machine.wait_traced(static, DRIVER)
    assert_both_layers(runs[0], program.pid)


def test_a_stripped_program_is_seen_in_the_driver_and_reported_to_be_blind_in_the_runtime(
    tmp_path: Path, static: Path
) -> None:
    machine = Machine(tmp_path)
    with machine.watching() as runs:
        program = machine.run(str(static.with_name("stripped")), str(CALLS), str(machine.traced))
        other = machine.run(str(static), str(CALLS), str(machine.traced))
        machine.wait_traced(static, DRIVER)
    assert numbers(runs[0], program.pid, "cuMemAlloc") == ALL
    assert runs[0].counts(program.pid)["cudaMalloc"] == 0
    blind = [sample for sample in runs[0].samples("problem") if "runtime layer blind" in sample.data["text"]]
    assert [sample.data["pid"] for sample in blind] == [program.pid]
    assert f"process {program.pid} (stripped)" in blind[0].data["text"]
    assert_both_layers(runs[0], other.pid)
