"""Durations agree with what bpftrace measures on the same calls in the same run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.ebpf.recording import Recorded, Workshop, bpftrace, compile_program, library
from tests.waiting import until_good

pytestmark = [pytest.mark.ebpf, pytest.mark.bpftrace, pytest.mark.timed]

MEASURED = {
    "cudaLaunchKernel": "libcudart.so.12",
    "cudaStreamSynchronize": "libcudart.so.12",
    "cudaMemcpy": "libcudart.so.12",
    "cuStreamSynchronize": "libcuda.so.1",
}
SHORTEST_NS = 20_000
AGREEING = 0.98
AGAIN_S = 15  # a slow machine puts whole milliseconds between two probes: it gets about three more tries

# (thread, function) -> duration of each call in the order of their starts
Durations = Mapping[tuple[int, str], list[int]]


def measuring_script() -> str:
    """bpftrace: a line for each call of each measured function."""
    parts = []
    for name, file in MEASURED.items():
        parts.append(
            f"uprobe:{library(file)}:{name} {{ @{name}[tid] = nsecs; }}\n"
            f"uretprobe:{library(file)}:{name} /@{name}[tid]/ {{\n"
            f'  printf("call %d {name} %llu %llu\\n", tid, @{name}[tid], nsecs - @{name}[tid]);\n'
            f"  delete(@{name}[tid]);\n}}"
        )
    return "\n".join(parts)


def durations_of_bpftrace(output: Path) -> Durations:
    calls: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for line in output.read_text().splitlines():
        if line.startswith("call "):
            _, tid, name, start, duration = line.split()
            calls.setdefault((int(tid), name), []).append((int(start), int(duration)))
    return {key: [duration for _, duration in sorted(rows)] for key, rows in calls.items()}


def durations_of_gputop(run: Recorded) -> Durations:
    names, records = run.calls()
    calls: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for row in records:
        end, duration = int(row["t_end"]), int(row["duration"])
        calls.setdefault((int(row["tid"]), names[row["op"]]), []).append((end - duration, duration))
    return {key: [duration for _, duration in sorted(rows)] for key, rows in calls.items()}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_program("durations.c", tmp_path_factory.mktemp("bin")))


@pytest.mark.parametrize(("waiting", "threads", "calls"), [("spin", 2, 400), ("block", 6, 250)])
@pytest.mark.mainly("block-6-250")
def test_98_percent_of_long_calls_fall_into_the_bucket_where_bpftrace_sees_them(
    tmp_path: Path, program: str, waiting: str, threads: int, calls: int
) -> None:
    def measured() -> tuple[float, float]:
        """The part of the long calls that fall into the same bucket, and the shortest of them in ns."""
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        workshop, output = Workshop(folder), folder / "bpftrace.txt"
        with bpftrace(measuring_script(), output):
            run = workshop.record(program, "libcudart.so.12", str(threads), str(calls), waiting)
        mine, theirs = durations_of_gputop(run), durations_of_bpftrace(output)
        keys = [key for key in mine if key[1] in MEASURED]
        assert {name for _, name in keys} == set(MEASURED)
        assert {key: len(mine[key]) for key in keys} == {key: len(theirs[key]) for key in keys}
        ours = np.concatenate([mine[key] for key in keys]).astype(float)
        reference = np.concatenate([theirs[key] for key in keys]).astype(float)
        long = reference > SHORTEST_NS
        same = np.floor(np.log2(ours[long])) == np.floor(np.log2(reference[long]))
        apart = np.abs(ours - reference)[long]
        print(
            f"{waiting}: {long.sum()} calls over 20 us, {100 * same.mean():.2f} % in the same bucket, "
            f"{np.median(apart):.0f} ns apart in the median, {np.percentile(apart, 99):.0f} ns in the 99th"
        )
        (line,) = run.said
        assert long.sum() > 2 * line["synchronized"], "runtime and driver layer of each wait, and copies"
        assert reference.max() > 15e6
        return float(same.mean()), float(reference[long].min())

    same, shortest_ns = until_good(measured, lambda found: found[0] >= AGREEING and found[1] < 100e3, AGAIN_S)
    assert shortest_ns < 100e3
    assert same >= AGREEING
