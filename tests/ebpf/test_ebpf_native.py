"""Calls of programs without Python carry the functions that made them, and nothing that is uncertain."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from probes.schema import Kind
from probes.source import FRAMES, PLACES, Sample
from replay.reader import SessionReader
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop, compile_program

pytestmark = pytest.mark.ebpf

Frame = tuple[str, int, str]
GAP: Frame = ("", 0, "…")
ROUNDS = 3000
AGAIN = 64  # SITE_AGAIN of native.c: how seldom a place that was met before is walked again
KEPT, OMITTED = "-fno-omit-frame-pointer", "-fomit-frame-pointer"


def stacks(run: Recorded) -> dict[int, list[Frame]]:
    """Number of a stack -> its frames; without those that are not known."""
    reader = SessionReader(run.path)
    samples = [item for item in reader.items() if isinstance(item, Sample) and item.kind == FRAMES]
    reader.close()
    return {
        number: [tuple(frame) for frame in frames]
        for sample in samples
        for number, frames in zip(sample.data["stack"], sample.data["frames"], strict=True)
        if frames
    }


def functions(process: dict[str, Any]) -> Counter[str]:
    """Calls by function, wherever in it they are made."""
    found: Counter[str] = Counter()
    for row in process["lines"]:
        assert (row["api"], row["line"]) == ("cudaDeviceSynchronize", 0)
        found[row["function"].partition("+0x")[0]] += row["count"]
    return found


@dataclass(frozen=True)
class Built:
    """What is compiled in a folder."""

    folder: Path

    @property
    def plain(self) -> Path:
        """With frame pointers and symbols."""
        return self.folder / "plain"

    @property
    def stripped(self) -> Path:
        """Without both; ``debug`` beside it has the symbols."""
        return self.folder / "stripped"

    @property
    def libraries(self) -> list[str]:
        """Two that take each other's place."""
        return [str(self.folder / f"lib{name}.so") for name in ("alpha", "beta")]

    @property
    def programs(self) -> list[str]:
        """Two of which one becomes the other."""
        return [str(self.folder / name) for name in ("third", "fourth")]

    @property
    def mixed(self) -> Path:
        """A library for a program of Python's."""
        return self.folder / "libmixed.so"

    def compile(self) -> None:
        """All of it."""
        compile_program("native_lines.c", self.folder, KEPT, "-rdynamic", output="plain")
        debug = compile_program("native_lines.c", self.folder, OMITTED, "-g", output="debug")
        subprocess.run(["strip", "-o", self.stripped, debug], check=True)
        compile_program("native_sites.c", self.folder, KEPT, "-fno-optimize-sibling-calls", output="sites")
        for name in ("alpha", "beta"):
            _swap(self.folder, f"lib{name}.so", f"-DWORKER={name}", "-shared", "-fPIC")
        for name in ("third", "fourth"):
            _swap(self.folder, name, f"-DPROGRAM={name}", "-no-pie", "-rdynamic")
        _swap(self.folder, self.mixed.name, "-DWORKER=worker", "-DLINKED", "-shared", "-fPIC")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The programs."""
    made = Built(tmp_path_factory.mktemp("native"))
    made.compile()
    return made


@pytest.fixture(scope="module")
def runs(built: Built) -> dict[str, Recorded]:
    """All of them in one recording."""
    programs = {
        "plain": [str(built.plain), "200", "1000"],
        "stripped": [str(built.stripped), "200"],
        "sites": [str(built.folder / "sites"), str(ROUNDS)],
        "swapped": [built.programs[0], "10", built.programs[1], *built.libraries, *built.libraries],
        "mixed": [sys.executable, str(PROGRAMS / "mixed.py"), str(built.mixed), "20"],
    }
    return Workshop(built.folder, lines="slow").record_all(programs)


def test_each_function_has_its_calls_and_the_callers_that_glibc_sees(
    built: Built, runs: dict[str, Recorded]
) -> None:
    program, run = built.plain, runs["plain"]
    (said,) = run.said
    process = run.process(said["pid"])
    assert functions(process) == said["made"]
    assert process["unknown_lines"] == 0
    met = Counter(
        tuple(frame[2] for frame in frames[:1]) for frames in looks(run) if frames[0][0] == str(program)
    )
    assert met["compute",] >= 0.8 * met.total() > 0, "between two calls a timer meets what computes"
    calls = run.records(Kind.CALL)
    made = set(calls["stack"][calls["pid"] == said["pid"]].tolist())  # a timer may meet code of the loader
    told = [frames for number, frames in stacks(run).items() if number in made]
    assert all({frame[0] for frame in frames} >= {str(program)} for frames in told)
    for name, theirs in said["stacks"].items():
        assert len(theirs) == 3
        of_main = [
            [frame[2] for frame in frames[1:]] for frames in told if frames[0][2].startswith(f"{name}+")
        ]
        assert theirs in of_main
        assert {tuple(frames[:2]) for frames in of_main} == {tuple(theirs[:2])}, "the other thread's callers"


def test_without_frame_pointers_and_symbols_the_caller_is_exact_and_nothing_behind_it_is_claimed(
    built: Built, runs: dict[str, Recorded]
) -> None:
    run, program = runs["stripped"], built.folder / "debug"
    (said,) = run.said
    found: Counter[str] = Counter()
    for row in run.process(said["pid"])["lines"]:
        found[_addr2line(program, row["function"].removeprefix("stripped+"))] += row["count"]
    assert found == said["made"]
    calls = [frames for frames in stacks(run).values() if frames[0][2].startswith("stripped+")]
    assert {tuple(frames[1:]) for frames in calls} == {(GAP,)}


def test_calls_of_a_place_that_was_met_before_have_the_callers_that_they_come_from(
    runs: dict[str, Recorded],
) -> None:
    """What distinguishes them lies further out than what a place is known by: it is found out soon."""
    run = runs["sites"]
    (said,) = run.said
    known, calls = stacks(run), run.records(Kind.CALL)
    made = Counter(
        known.get(number, ()) and tuple(frame[2].partition("+0x")[0] for frame in known[number])
        for number in calls["stack"][calls["pid"] == said["pid"]].tolist()
    )
    made.pop((), None)
    found: dict[str, Counter[str]] = {"in_turns": Counter(), "one_after_the_other": Counter()}
    for names, count in made.items():
        (who,), (when,) = ({"alpha", "beta"} & set(names), found.keys() & set(names))
        found[when][who] += count
    layers = found["in_turns"]["alpha"] // ROUNDS
    assert layers >= 1
    assert found["in_turns"] == {"alpha": layers * ROUNDS, "beta": layers * ROUNDS}
    late = found["one_after_the_other"]
    assert late.total() == 2 * layers * ROUNDS
    assert late["alpha"] - layers * ROUNDS <= layers * AGAIN


def _addr2line(program: Path, address: str) -> str:
    """The function at the call before an address."""
    place = hex(int(address, 16) - 1)
    command = ["addr2line", "-f", "-e", str(program), place]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def looks(run: Recorded) -> list[list[Frame]]:
    """Where threads were met between two calls."""
    known = stacks(run)
    reader = SessionReader(run.path)
    samples = [item for item in reader.items() if isinstance(item, Sample) and item.kind == PLACES]
    reader.close()
    return [known[stack] for sample in samples for stack in sample.data["stack"] if stack in known]


def test_other_code_at_the_same_addresses_has_its_own_name(built: Built, runs: dict[str, Recorded]) -> None:
    """Libraries that are unloaded, an exec, and a child that has ended before anybody could look at it."""
    run, libraries, programs = runs["swapped"], built.libraries, built.programs
    before, after = run.said
    assert before["pid"] == after["pid"]
    assert len(set(before["places"] + after["places"])) <= 2, "the test is of addresses that are used again"
    made = {"third": 10, "fourth": 10, "work::alpha(int)": 2 * 80, "work::beta(int)": 2 * 100}
    process = run.process(before["pid"])
    assert functions(process) == made
    assert process["unknown_lines"] == 0
    assert {row["file"] for row in process["lines"]} == {*libraries, *programs}
    assert functions(run.process(before["child"])) == {"third": 20}
    assert functions(run.process(after["child"])) == {"fourth": 20}


def _swap(folder: Path, name: str, *flags: str) -> None:
    source = str(PROGRAMS / "native_swap.cc")
    command = ["c++", "-U_GNU_SOURCE", "-O2", KEPT, *flags, "-o", str(folder / name), source, "-ldl"]
    subprocess.run(command, check=True)


def test_a_c_library_under_python_is_shown_with_the_line_of_python(
    built: Built, runs: dict[str, Recorded]
) -> None:
    run, library = runs["mixed"], built.mixed
    (said,) = run.said
    process = run.process(said["pid"])
    source = PROGRAMS / "mixed.py"
    (line,) = [row for row, text in enumerate(source.read_text().splitlines(), 1) if "library.enter(" in text]
    assert [(row["file"], row["line"], row["count"]) for row in process["lines"]] == [(str(source), line, 60)]
    (frames,) = {tuple(frames) for frames in stacks(run).values() if frames[0][0] == str(library)}
    assert [frame[2].partition("+0x")[0] for frame in frames[:2]] == ["work::worker(int)", "enter"]
    native = [frame for frame in frames if frame[1] == 0]
    assert GAP in native, "libffi keeps no frame pointer of that form"
    assert [frame[2] for frame in frames[len(native) :]] == ["through_c", "<module>"]
