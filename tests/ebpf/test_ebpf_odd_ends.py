"""Calls that do not end in the ordinary way are counted once and disturb no later call."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from probes import schema
from probes.schema import CallFlag
from tests.ebpf.recording import Recorded, Workshop, compile_program

pytestmark = pytest.mark.ebpf

ROUNDS = 200
CASES = ("nesting", "longjmp", "deeper", "exit", "tail", "launch")
FAILED = 719
STREAM = 0x1000
Runs = dict[str, Recorded]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a runtime and a driver library that call back, and the program linked to them."""
    directory = tmp_path_factory.mktemp("fake")
    shared = ("-shared", "-fPIC", "-fvisibility=hidden", "-fno-optimize-sibling-calls", "-DLAUNCHES")
    driver, runtime = "libcuda.so.1", "libcudart.so.12"
    compile_program("fake_cuda.c", directory, *shared, f"-Wl,-soname,{driver}", output=driver)
    flags = (*shared, "-DRUNTIME", f"-Wl,-soname,{runtime}", str(directory / driver))
    compile_program("fake_cuda.c", directory, *flags, output=runtime)
    compile_program("odd_ends.c", directory, str(directory / runtime), str(directory / driver))
    return directory


@pytest.fixture(scope="module", params=["multi", pytest.param("pairs", marks=pytest.mark.long), "perf"])
def runs(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Each case, all of a way of attaching in one recording."""
    folder, library = tmp_path_factory.mktemp(request.param), built
    if request.param == "perf":  # its probes are gone only minutes later
        library = folder / "own"
        shutil.copytree(built, library)
    cases = {case: [str(library / "odd_ends"), case, str(ROUNDS)] for case in CASES}
    env = {"LD_LIBRARY_PATH": str(library)}
    made = Workshop(folder, request.param).record_all(cases, (), **env)
    assert all(run.lost == 0 and len(run.said) == 1 for run in made.values())
    return made


def of_program(run: Recorded) -> tuple[list[str], schema.Records]:
    """The names of the functions, and the calls of the case's own program."""
    names, records = run.calls()
    return names, records[records["pid"] == run.said[0]["pid"]]


def abandoned(run: Recorded) -> dict[str, int]:
    """API -> calls that never returned."""
    names, records = of_program(run)
    marked = records[records["flags"] & CallFlag.ABANDONED != 0]
    return {
        name: int((marked["op"] == op).sum()) for op, name in enumerate(names) if (marked["op"] == op).any()
    }


def assert_ordinary_calls(run: Recorded) -> None:
    """Each malloc has its driver call inside, each free is outermost, nothing else was seen."""
    (line,) = run.said
    pid = line["pid"]
    assert run.nesting(pid, "cudaMalloc") == {False: line["mallocs"]}
    assert run.nesting(pid, "cuMemAlloc").get(True, 0) == line["mallocs"]
    assert run.nesting(pid, "cuMemAlloc").get(False, 0) == line["direct"]
    assert run.nesting(pid, "cudaFree") == {False: line["frees"]}


def test_a_driver_call_is_nested_inside_its_runtime_call_and_outermost_by_itself(runs: Runs) -> None:
    run = runs["nesting"]
    assert_ordinary_calls(run)
    (line,) = run.said
    assert line["direct"] == 2 * ROUNDS
    outermost = [call for call in run.process(line["pid"])["calls"] if not call["nested"]]
    assert sum(call["count"] for call in outermost) == line["mallocs"] + line["frees"] + line["direct"]
    _, records = of_program(run)
    assert set(records["depth"][records["flags"] & CallFlag.NESTED != 0]) == {1}
    assert abandoned(run) == {}


@pytest.mark.parametrize("case", ["longjmp", "deeper"])
def test_a_call_left_by_longjmp_is_counted_once_and_no_later_call_is_lost(runs: Runs, case: str) -> None:
    run = runs[case]
    (line,) = run.said
    expected = {"cudaMalloc": line["mallocs"], "cuMemAlloc": line["mallocs"], "cudaFree": line["frees"]}
    assert run.counts(line["pid"]) == expected
    assert abandoned(run) == {"cudaMalloc": ROUNDS, "cuMemAlloc": ROUNDS}


def test_a_later_call_is_not_nested_in_one_left_by_longjmp_although_it_lies_deeper_in_the_stack(
    runs: Runs,
) -> None:
    assert_ordinary_calls(runs["deeper"])


def test_a_call_in_which_its_thread_exits_is_counted_once(runs: Runs) -> None:
    run = runs["exit"]
    assert_ordinary_calls(run)
    assert abandoned(run) == {"cudaMalloc": ROUNDS, "cuMemAlloc": ROUNDS}


def test_a_jump_from_one_probed_function_to_another_counts_both(runs: Runs) -> None:
    run = runs["tail"]
    (line,) = run.said
    assert run.nesting(line["pid"], "cudaStreamQuery") == {False: ROUNDS}
    assert run.nesting(line["pid"], "cudaEventQuery") == {True: ROUNDS}
    assert abandoned(run) == {}
    _, records = of_program(run)
    assert set(records["ret"]) == {600}, "both return what the second one says"


def launches(run: Recorded) -> tuple[schema.Records, schema.Records, schema.Records]:
    """The runtime's launches, the driver's that they made, and the driver's that the program made."""
    names, records = of_program(run)
    nested = records["flags"] & CallFlag.NESTED != 0
    below = records["op"] == names.index("cuLaunchKernel")
    assert not (nested & ~below).any()
    return records[~below], records[below & nested], records[below & ~nested]


def test_each_launch_counts_in_both_layers_however_it_ends(runs: Runs) -> None:
    run = runs["launch"]
    (line,) = run.said
    outer, inner, alone = launches(run)
    assert (len(outer), len(alone)) == (line["launches"], line["direct"]) == (7 * ROUNDS, ROUNDS)
    assert len(inner) == 6 * ROUNDS, "two have none and one has two"
    assert (inner["stream"] == STREAM).all()
    assert int((inner["ret"] == FAILED).sum()) == int((outer["ret"] == FAILED).sum()) == ROUNDS


def test_a_launch_inside_another_has_that_ones_times_where_its_return_is_not_probed(
    runs: Runs, request: pytest.FixtureRequest
) -> None:
    outer, inner, alone = launches(runs["launch"])
    within = inner["flags"] & CallFlag.WITHIN != 0
    assert not (alone["flags"] & CallFlag.WITHIN).any()
    if request.node.callspec.params["runs"] != "multi":
        assert not within.any()
        return
    assert within.all()
    spans = set(zip(outer["t_end"].tolist(), outer["duration"].tolist(), strict=True))
    beginnings = (outer["t_end"] - outer["duration"]).tolist()
    own = zip(inner["t_end"].tolist(), inner["duration"].tolist(), inner["aux"].tolist(), strict=True)
    sooner = [row for row in own if row[:2] not in spans]
    assert {end - took for end, took, _ in sooner} <= set(beginnings)
    assert len(sooner) == 2 * ROUNDS, "the first of two, and what was left: over with the next call"
    assert {handle for *_, handle in sooner} == {1}
