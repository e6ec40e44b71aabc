"""Calls of programs without Python carry the functions that made them, and nothing that is uncertain."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
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


def test_each_function_has_its_calls_and_the_callers_that_glibc_sees(tmp_path: Path) -> None:
    program = compile_program("native_lines.c", tmp_path, KEPT, "-rdynamic")
    run = Workshop(tmp_path, lines="costly").record(str(program), "200", "1000")
    (said,) = run.said
    process = run.process(said["pid"])
    assert functions(process) == said["made"]
    assert process["unknown_lines"] == 0
    met = Counter(
        tuple(frame[2] for frame in frames[:1]) for frames in looks(run) if frames[0][0] == str(program)
    )
    assert met["compute",] >= 0.8 * met.total() > 0, "between two calls a timer meets what computes"
    made = set(run.records(Kind.CALL)["stack"].tolist())  # a timer may meet code of the loader
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
    tmp_path: Path,
) -> None:
    program, stripped = compile_program("native_lines.c", tmp_path, OMITTED, "-g"), tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    run = Workshop(tmp_path, lines="costly").record(str(stripped), "200")
    (said,) = run.said
    found: Counter[str] = Counter()
    for row in run.process(said["pid"])["lines"]:
        found[_addr2line(program, row["function"].removeprefix("stripped+"))] += row["count"]
    assert found == said["made"]
    calls = [frames for frames in stacks(run).values() if frames[0][2].startswith("stripped+")]
    assert {tuple(frames[1:]) for frames in calls} == {(GAP,)}


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


def test_other_code_at_the_same_addresses_has_its_own_name(tmp_path: Path) -> None:
    """Libraries that are unloaded, an exec, and a child that has ended before anybody could look at it."""
    libraries = [
        _swap(tmp_path, f"lib{name}.so", f"-DWORKER={name}", "-shared", "-fPIC") for name in ("alpha", "beta")
    ]
    programs = [
        _swap(tmp_path, name, f"-DPROGRAM={name}", "-no-pie", "-rdynamic") for name in ("third", "fourth")
    ]
    arguments = [*libraries, libraries[0], libraries[1]]
    run = Workshop(tmp_path, lines="costly").record(programs[0], "10", programs[1], *arguments)
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


def _swap(folder: Path, name: str, *flags: str) -> str:
    source = str(PROGRAMS / "native_swap.cc")
    command = ["c++", "-U_GNU_SOURCE", "-O2", KEPT, *flags, "-o", str(folder / name), source, "-ldl"]
    subprocess.run(command, check=True)
    return str(folder / name)


def test_a_c_library_under_python_is_shown_with_the_line_of_python(tmp_path: Path) -> None:
    library = tmp_path / "libmixed.so"
    flags = ("-DWORKER=worker", "-DLINKED", "-shared", "-fPIC")
    _swap(tmp_path, library.name, *flags)
    run = Workshop(tmp_path, lines="costly").record(
        sys.executable, str(PROGRAMS / "mixed.py"), str(library), "20"
    )
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
