"""Functions that begin with ``endbr64``: probed behind it, as exactly as before and much more cheaply."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen

import pytest

from gputop.simgpu import ensure_built
from probes.api import NAMES
from probes.code import libraries, sites
from probes.ebpf import attach, loader
from probes.ebpf.ring import Ring
from probes.schema import Kind
from tests.ebpf.recording import PROGRAMS, Workshop, compile_program
from tests.opened_files import probes_of

pytestmark = pytest.mark.ebpf

ROUNDS = 5
CALLS = 300 * 50  # of one measurement, in cost.c
RING_BYTES = 4 << 20
WANTED = 5  # times cheaper
RUNTIME = "libcudart.so.12"
CALLED = PROGRAMS.parent.parent / "bench" / "cudart.c"
FLAGS = ("-shared", "-fPIC", "-O1", "-fno-omit-frame-pointer", "-fno-shrink-wrap", "-fcf-protection=branch")
ENDBR64 = bytes.fromhex("f3 0f 1e fa")


def endbr_environment() -> dict[str, str]:
    """The simulated GPU in the build whose functions begin with endbr64, on gputop's side too."""
    return {"LD_LIBRARY_PATH": str(ensure_built(endbr=True))}


def test_arguments_behind_endbr64_are_what_the_program_passed_also_those_on_the_stack(tmp_path: Path) -> None:
    command = (sys.executable, str(PROGRAMS / "arguments.py"))
    run = Workshop(tmp_path).record(*command, flags=(), env=endbr_environment())
    names, records = run.calls()
    seen = [
        (names[row["op"]], int(row["ret"]), int(row["bytes"]), int(row["flags"]) >> 8, int(row["stream"]))
        for row in records[records["depth"] == 0]
    ]
    asked = [
        (
            re.sub(r"(_v2)?(_pts[zs]|_ptds)?$", "", line["symbol"]),
            *(line[key] for key in ("ret", "bytes", "kind", "stream")),
        )
        for line in run.said
    ]
    launches = [line for line in asked if line[0] == "cudaLaunchKernel"]
    assert any(stream not in (0, 2) for *_, stream in launches), "a stream that lies on the stack"
    assert seen == [line for line in asked if line[0] in NAMES]


def test_counts_behind_endbr64_are_the_programs_own(tmp_path: Path) -> None:
    program = compile_program("counts.c", tmp_path)
    workshop = Workshop(tmp_path)
    cheap = {"SIMGPU_LAUNCH_NS": "0", "SIMGPU_LATENCY_NS": "0", "SIMGPU_KERNEL_NS": "1"}
    command = (str(program), RUNTIME, "4", "2", "1000")
    run = workshop.record(*command, flags=(), env=endbr_environment() | cheap)
    assert run.lost == 0
    assert len(run.said) == 2
    for line in run.said:
        for api, made in (line["made"] | line["direct"]).items():
            assert run.nesting(line["pid"], api)[False] == made
        simulated = workshop.simgpu_counts(line["pid"])
        assert run.counts(line["pid"])["cuLaunchKernel"] == simulated["cuLaunchKernel"] > 4000


def cost_ns(program: Popen[str]) -> float:
    """What a call costs now."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    return float(program.stdout.readline())


@pytest.mark.timed
def test_a_call_behind_endbr64_costs_a_fifth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program measures itself: untraced, probed at the first instruction, probed where gputop chooses."""
    path = compile_program(str(CALLED), tmp_path, *FLAGS, output=RUNTIME)
    target = libraries.target(path)
    assert target is not None
    (query,) = [probe for probe in probes_of(target) if probe.symbol == "cudaEventQuery"]
    code = path.read_bytes()
    assert code[query.offset - 4 : query.offset] == ENDBR64
    chosen = sites.choose
    programs = loader.load(loader.Options(True, RING_BYTES, os.getpid()))
    ring, calls = Ring(programs.maps["events"], RING_BYTES), 0

    def probed(choose: object) -> float:
        nonlocal calls
        monkeypatch.setattr(sites, "choose", choose)
        attachments = attach.Attachments(programs)
        try:
            assert attachments.attach([target])
            cost = cost_ns(program)
        finally:
            attachments.close()
        while len(records := ring.read()):
            calls += int((records["kind"] == Kind.CALL).sum())
        return cost

    costs: list[tuple[float, float]] = []
    with Popen([compile_program("cost.c", tmp_path), path], stdin=PIPE, stdout=PIPE, text=True) as program:
        for _ in range(ROUNDS):
            bare = cost_ns(program)
            stepped = probed(lambda _code: sites.Site(0, cheap=False))
            costs.append((stepped - bare, probed(chosen) - bare))
    assert calls == 2 * ROUNDS * CALLS, "all calls are records"
    ratio = median(stepped / cheap for stepped, cheap in costs)
    stepped, cheap = (min(cost) for cost in zip(*costs, strict=True))
    print(f"single-stepped {stepped:.0f} ns, emulated {cheap:.0f} ns: {ratio:.1f} times")
    assert ratio >= WANTED
