"""What kernels without multi-uprobe links get: fewer functions, told so, and the prompt back at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probes.ebpf.degradation import MINIMAL
from replay.reader import SessionReader
from tests.ebpf.growing import marks
from tests.ebpf.jobs import running
from tests.ebpf.recording import Workshop, compile_program
from tests.waiting import HANGS_S, until_good, wait_until

SOONER = 2  # times as soon as it began
TURNS = 2  # at least


@pytest.mark.ebpf
@pytest.mark.timed
def test_the_prompt_is_back_at_once_while_probes_are_detached(tmp_path: Path) -> None:
    """Sooner than gputop began. The kernel alone would take the recorder's process ten seconds and more.

    Of both the shortest counts: a machine that was slow while it began must not make up for a late end.
    """
    workshop, stop = Workshop(tmp_path, "perf"), tmp_path / "stop"
    ends: list[float] = []
    begins: list[float] = []
    with running(workshop, compile_program("steady.c", tmp_path), stop) as job:

        def shortest() -> tuple[float, float]:
            """One more turn -> seconds until it had begun, and until it had ended, the shortest of all."""
            workshop.file = tmp_path / f"{len(ends)}.gputop"
            began = time.monotonic()
            recorder = workshop.start(["--pid", str(job.pid)])
            wait_until(lambda: marks(workshop.file) > 0, "the recorder to attach")
            asked = time.monotonic()
            begins.append(asked - began)
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(timeout=HANGS_S) == 0
            ends.append(time.monotonic() - asked)
            recorder.communicate()
            return min(begins), min(ends)

        begin, end = until_good(
            shortest, lambda found: len(ends) >= TURNS and SOONER * found[1] < found[0], every=0
        )
        stop.touch()
    print(f"it began in {begin:.2f} s, the prompt was back after {end:.2f} s")
    assert SOONER * end < begin


@pytest.mark.long
@pytest.mark.ebpf
def test_no_call_is_older_than_the_session_which_would_make_its_first_rates_too_high(tmp_path: Path) -> None:
    workshop, stop = Workshop(tmp_path, "perf"), tmp_path / "stop"
    with running(workshop, compile_program("steady.c", tmp_path), stop) as job:
        run = workshop.finish(workshop.start(["--pid", str(job.pid), "--duration", "0.2"]))
        stop.touch()
    reader = SessionReader(run.path)
    start_ns = reader.header["start_ns"]
    reader.close()
    _, calls = run.calls()
    assert len(calls) > 10
    assert calls["t_end"].min() >= start_ns


@pytest.mark.ebpf
def test_a_recording_says_that_not_all_functions_are_traced(tmp_path: Path) -> None:
    run = Workshop(tmp_path, "perf").record("true")
    assert any("multi-uprobe links (Linux 6.6)" in text for text in run.stats["problems"])
    reader = SessionReader(run.path)
    assert reader.header["attach"] == "perf"
    reader.close()


@pytest.mark.ebpf
def test_a_wrong_way_to_attach_is_refused_in_a_sentence(tmp_path: Path) -> None:
    recorder = Workshop(tmp_path, "magic").start(["--duration", "1"])
    _, errors = recorder.communicate(timeout=HANGS_S)
    assert "GPUTOP_ATTACH=magic: it can be multi, pairs or perf" in errors


@pytest.mark.ebpf
@pytest.mark.long
def test_the_programs_compile_for_arm64() -> None:
    """Loaded they cannot be here: what is shown is that no macro and no register is missing."""
    script = """
import json, platform
platform.machine = lambda: "aarch64"
from probes.ebpf.build import compiled
from probes.ebpf.build import compiler
from probes.ebpf import loader
text = loader.source_text(loader.Options(True, 1 << 20, 1), as_old=True).encode()
compiler.FLAGS = ("-D__aarch64__", "-U__x86_64__", *compiler.FLAGS)
programs = compiler.compile_text(text, str(compiled.SHIM))["programs"]
print(json.dumps([len(programs[name]) for name in ("on_entry", "on_return", "on_switch")]))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert min(json.loads(result.stdout)) > 1000


def test_the_minimal_set_holds_what_totals_and_proofs_of_idleness_need() -> None:
    for needed in (
        *("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpy", "cudaMemcpyAsync"),
        *("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cudaMemsetAsync", "cudaDeviceSynchronize"),
        *("cuCtxSynchronize", "cudaStreamSynchronize", "cuStreamSynchronize", "cudaEventSynchronize"),
        *("cudaStreamQuery", "cudaEventQuery", "cudaEventRecord", "cudaMalloc", "cuMemAlloc", "cudaFree"),
        *("cuMemFree", "ncclAllReduce", "ncclAllGather", "ncclSend", "ncclRecv"),
    ):
        assert needed in MINIMAL
    cuda = [name for name in MINIMAL if not name.startswith("nccl")]
    assert 40 <= len(cuda) <= 50
