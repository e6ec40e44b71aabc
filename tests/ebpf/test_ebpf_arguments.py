"""What a call was asked for and what it answered is in its record; also of NVIDIA's own library."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.ebpf.recording import PROGRAMS, Workshop
from tests.simgpu_programs import cuda_toolkit

pytestmark = pytest.mark.ebpf

NO_DRIVER = 35  # cudaErrorInsufficientDriver


def test_bytes_direction_stream_and_return_code_of_each_call_are_what_the_program_passed(
    tmp_path: Path, traced_names: frozenset[str]
) -> None:
    run = Workshop(tmp_path).python("arguments.py")
    names, records = run.calls()
    outermost = records[records["depth"] == 0]
    if len(traced_names) < 100:
        # the runtime calls that it is made in belong to those that the smaller set leaves out
        outermost = outermost[outermost["op"] != names.index("cuDevicePrimaryCtxRetain")]
    seen = [
        {
            "api": names[row["op"]],
            "ret": int(row["ret"]),
            "bytes": int(row["bytes"]),
            "kind": int(row["flags"]) >> 8,
            "stream": int(row["stream"]),
        }
        for row in outermost
    ]
    asked = [{"api": re.sub(r"(_v2)?(_pts[zs]|_ptds)?$", "", line.pop("symbol"))} | line for line in run.said]
    asked = [line for line in asked if line["api"] in traced_names]
    called = {line["api"] for line in asked}
    # a driver call inside a function that is not traced is outermost
    seen = [row for row in seen if len(traced_names) > 100 or row["api"] in called]
    assert len(asked) > (60 if len(traced_names) > 100 else 30)
    assert [row["api"] for row in seen] == [row["api"] for row in asked]
    assert [pair for pair in zip(seen, asked, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("major", [12, 13])
@pytest.mark.mainly("13")
def test_calls_of_nvidias_own_runtime_are_counted_with_their_errors(tmp_path: Path, major: int) -> None:
    library = cuda_toolkit.real_runtime(major)
    workshop = Workshop(tmp_path)
    command = (sys.executable, str(PROGRAMS / "without_driver.py"), str(library))
    run = workshop.record(*command, flags=(), env={"LD_LIBRARY_PATH": str(library.parent)})
    (line,) = run.said
    assert line["codes"].pop("cudaGetDeviceCount"), "called, and not one of the traced functions"
    made = {name: len(codes) for name, codes in line["codes"].items()}
    assert run.counts(line["pid"]) == made
    rows = {call["api"]: call for call in run.process(line["pid"])["calls"]}
    failed = {name: sum(code != 0 for code in codes) for name, codes in line["codes"].items()}
    assert {name: row["errors"] for name, row in rows.items()} == failed
    assert {row["layer"] for row in rows.values()} == {"runtime"}
    names, records = run.calls()
    told = Counter((names[row["op"]], int(row["ret"])) for row in records)
    assert told == Counter((name, code) for name, codes in line["codes"].items() for code in codes)
    if not Path("/dev/nvidiactl").exists():
        assert told["cudaMalloc", NO_DRIVER] == made["cudaMalloc"]


def test_handles_and_addresses_that_a_call_made_are_in_its_record(tmp_path: Path) -> None:
    """Of the outermost call only: the runtime hands its own pointer on, and the driver leaves no other."""
    run = Workshop(tmp_path, "multi").python("creations.py")
    names, records = run.calls()
    of_host = {"cudaMallocHost", "cudaHostAlloc", "cuMemAllocHost", "cuMemHostAlloc"}
    makes = re.compile(r"(Stream|Event)Create|HostAlloc|M\w*AllocHost|MallocHost")
    seen, nested = [], []
    for row in records:
        api, stream, aux = names[row["op"]], int(row["stream"]), int(row["aux"])
        if makes.search(api):
            made, flags = (aux, 0) if api in of_host else (stream, aux)
            found = {"api": api, "ret": int(row["ret"]), "made": made, "flags": flags}
            (nested if row["depth"] else seen).append(found)
    asked = [line | {"api": line["api"].removesuffix("_v2")} for line in run.said]
    assert len(asked) == 38
    assert seen == asked
    by_runtime = [line for line in asked if line["api"].startswith("cuda")]
    assert len(nested) == 23
    inner = [(row["ret"], row["made"], row["flags"]) for row in nested if row["ret"] == 0]
    assert inner == [(row["ret"], 0, row["flags"]) for row in by_runtime if row["ret"] == 0]
