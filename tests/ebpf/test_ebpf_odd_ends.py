"""Calls that do not end in the ordinary way are counted once and disturb no later call."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.schema import CallFlag
from tests.ebpf.recording import Recorded, Workshop, compile_program

pytestmark = pytest.mark.ebpf

ROUNDS = 200


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a runtime and a driver library that call back, and the program linked to them."""
    directory = tmp_path_factory.mktemp("fake")
    shared = ("-shared", "-fPIC", "-fvisibility=hidden", "-fno-optimize-sibling-calls")
    driver, runtime = "libcuda.so.1", "libcudart.so.12"
    compile_program("fake_cuda.c", directory, *shared, f"-Wl,-soname,{driver}", output=driver)
    flags = (*shared, "-DRUNTIME", f"-Wl,-soname,{runtime}", str(directory / driver))
    compile_program("fake_cuda.c", directory, *flags, output=runtime)
    compile_program("odd_ends.c", directory, str(directory / runtime), str(directory / driver))
    return directory


def run_case(built: Path, directory: Path, case: str) -> Recorded:
    environment = {"LD_LIBRARY_PATH": str(built)}
    run = Workshop(directory).record(str(built / "odd_ends"), case, str(ROUNDS), flags=(), env=environment)
    assert run.lost == 0
    assert len(run.said) == 1
    return run


def abandoned(run: Recorded) -> dict[str, int]:
    """API -> calls that never returned."""
    names, records = run.calls()
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


@pytest.mark.usefixtures("traced_names")
def test_a_driver_call_is_nested_inside_its_runtime_call_and_outermost_by_itself(
    built: Path, tmp_path: Path
) -> None:
    run = run_case(built, tmp_path, "nesting")
    assert_ordinary_calls(run)
    (line,) = run.said
    assert line["direct"] == 2 * ROUNDS
    outermost = [call for call in run.process(line["pid"])["calls"] if not call["nested"]]
    assert sum(call["count"] for call in outermost) == line["mallocs"] + line["frees"] + line["direct"]
    _, records = run.calls()
    assert set(records["depth"][records["flags"] & CallFlag.NESTED != 0]) == {1}
    assert abandoned(run) == {}


@pytest.mark.usefixtures("traced_names")
@pytest.mark.parametrize("case", ["longjmp", "deeper"])
def test_a_call_left_by_longjmp_is_counted_once_and_no_later_call_is_lost(
    built: Path, tmp_path: Path, case: str
) -> None:
    run = run_case(built, tmp_path, case)
    (line,) = run.said
    expected = {"cudaMalloc": line["mallocs"], "cuMemAlloc": line["mallocs"], "cudaFree": line["frees"]}
    assert run.counts(line["pid"]) == expected
    assert abandoned(run) == {"cudaMalloc": ROUNDS, "cuMemAlloc": ROUNDS}


def test_a_later_call_is_not_nested_in_one_left_by_longjmp_although_it_lies_deeper_in_the_stack(
    built: Path, tmp_path: Path
) -> None:
    run = run_case(built, tmp_path, "deeper")
    assert_ordinary_calls(run)


def test_a_call_in_which_its_thread_exits_is_counted_once(built: Path, tmp_path: Path) -> None:
    run = run_case(built, tmp_path, "exit")
    assert_ordinary_calls(run)
    assert abandoned(run) == {"cudaMalloc": ROUNDS, "cuMemAlloc": ROUNDS}


@pytest.mark.usefixtures("traced_names")
def test_a_jump_from_one_probed_function_to_another_counts_both(built: Path, tmp_path: Path) -> None:
    run = run_case(built, tmp_path, "tail")
    (line,) = run.said
    assert run.nesting(line["pid"], "cudaStreamQuery") == {False: ROUNDS}
    assert run.nesting(line["pid"], "cudaEventQuery") == {True: ROUNDS}
    assert abandoned(run) == {}
    _, records = run.calls()
    assert set(records["ret"]) == {600}, "both return what the second one says"
