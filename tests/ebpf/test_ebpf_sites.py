"""Functions that begin with ``endbr64``: probed behind it, as exactly as before and much more cheaply."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from gputop.simgpu import ensure_built
from probes.api import NAMES
from probes.code import libraries, sites
from probes.ebpf import attacher, loader
from probes.ebpf.bpf_ring import Ring
from probes.schema import Kind
from tests.ebpf.recording import PROGRAMS, Workshop, compile_program
from tests.opened_files import probes_of
from tests.waiting import until_good

pytestmark = pytest.mark.ebpf

ROUNDS = 5  # at least
CALLS = 300 * 50  # of one measurement, in cost.c
RING_BYTES = 4 << 20
ALIKE = 1.5  # times as dear at most
RUNTIME = "libcudart.so.12"
CALLED = PROGRAMS.parent.parent / "bench" / "cudart.c"
FLAGS = ("-shared", "-fPIC", "-O1", "-fno-omit-frame-pointer", "-fno-shrink-wrap")
ENDBR64 = bytes.fromhex("f3 0f 1e fa")
PUSH_RBP = b"\x55"


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


class Called:
    """A program that calls cudaEventQuery of a library again and again, and measures what a call costs.

    The library's file has a name that says nothing when the program opens it: somebody else's gputop goes by
    names, and would probe it as well, between two measurements.
    """

    def __init__(self, folder: Path, protected: bool) -> None:
        folder.mkdir()
        flags = (*FLAGS, f"-fcf-protection={'branch' if protected else 'none'}")
        library = compile_program(str(CALLED), folder, *flags, output=RUNTIME)
        target = libraries.target(library)
        assert target is not None
        library = library.rename(folder / "called.so")
        self.target = replace(target, path=library, shown=str(library))
        (query,) = [probe for probe in probes_of(self.target) if probe.symbol == "cudaEventQuery"]
        code = library.read_bytes()
        assert (code[query.offset - len(ENDBR64) : query.offset] == ENDBR64) is protected
        assert code.startswith(PUSH_RBP, query.offset)
        self.program = Popen([compile_program("cost.c", folder), library], stdin=PIPE, stdout=PIPE, text=True)

    def cost_ns(self) -> float:
        """What a call costs now."""
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.program.stdin.write("\n")
        self.program.stdin.flush()
        return float(self.program.stdout.readline())

    def close(self) -> None:
        with self.program:
            self.program.communicate()


@pytest.mark.long
@pytest.mark.timed
def test_a_call_behind_endbr64_costs_what_one_without_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs measure themselves: untraced, probed where gputop chooses, and probed at endbr64 itself.

    How many times dearer single-stepping is depends on the processor and the day, so what gputop chooses is
    compared with the same probe of a function without endbr64. Single-stepping must not pass for it.

    What counts is the cheapest round of each, and of the call without a probe: a round in which the machine
    is slow does not count, and where all are, another one follows.
    """
    chosen = sites.choose
    programs = loader.load(loader.Options(True, RING_BYTES, os.getpid()))
    ring, calls = Ring(programs.maps["events"], RING_BYTES), 0

    def costs_ns(called: Called, choose: Callable[[bytes], sites.Site] = chosen) -> tuple[float, float]:
        """Of a call without a probe and with one."""
        nonlocal calls
        bare = called.cost_ns()
        monkeypatch.setattr(sites, "choose", choose)
        attachments = attacher.Attachments(programs)
        try:
            assert attachments.attach([called.target])
            cost = called.cost_ns()
        finally:
            attachments.close()
        while len(records := ring.read()):
            calls += int((records["kind"] == Kind.CALL).sum())
        return bare, cost

    with (
        closing(Called(tmp_path / "plain", protected=False)) as plain,
        closing(Called(tmp_path / "protected", protected=True)) as protected,
    ):
        rounds = []

        def probes_cost_ns() -> tuple[float, float, float]:
            """One more round -> what the three probes cost by all of them."""
            rounds.append(
                (
                    costs_ns(plain),
                    costs_ns(protected),
                    costs_ns(protected, lambda _code: sites.Site(0, cheap=False)),
                )
            )
            assert calls == 3 * len(rounds) * CALLS, "all calls are records"
            push, behind, stepped = (
                min(cost for _, cost in found) - min(bare for bare, _ in found)
                for found in zip(*rounds, strict=True)
            )
            print(
                f"without endbr64 {push:.0f} ns, behind it {behind:.0f} ns, single-stepped {stepped:.0f} ns"
            )
            return push, behind, stepped

        push, behind, stepped = until_good(
            probes_cost_ns,
            lambda found: len(rounds) >= ROUNDS and found[1] < ALIKE * found[0] < found[2],
            every=0,
        )
    assert behind < ALIKE * push < stepped
