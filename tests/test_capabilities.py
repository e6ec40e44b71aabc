"""Partial rights, ambient or of the file (setcap), are used as far as they go; what they lack is named."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from probes.ebpf import attach_perf
from tests.conftest import skip_or_fail
from tests.gputop_command import GPUTOP
from tests.rootless_support import NOBODY, as_nobody, environment, frame, is_rootless, recorded

ROOT = Path(__file__).resolve().parent.parent
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all")
EFFECTIVE = "print(next(line for line in open('/proc/self/status') if line.startswith('CapEff')).split()[1])"
CAPABILITIES = {"dac_read_search": 2, "perfmon": 38, "bpf": 39}

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else"),
    pytest.mark.ebpf,
]


def counted(found: dict[str, Any]) -> dict[str, int]:
    """Calls of the only process, without those made inside others."""
    (row,) = found["processes"]
    return {call["api"]: call["count"] for call in row["calls"] if not call["nested"]}


# -- ambient, as from systemd --------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.ebpf
def test_two_capabilities_trace_the_calls_of_one_s_own_processes_exactly(home: Path) -> None:
    found = recorded(home, (*as_nobody("bpf", "perfmon"), *GPUTOP))
    assert (found["calls_observed"], found["problems"][:1]) == (True, []), found["problems"]
    assert counted(found) == {"cudaMemset": 1234}


@pytest.mark.ebpf
@pytest.mark.long
def test_two_capabilities_say_what_they_leave_out_of_the_whole_machine(home: Path) -> None:
    found = frame(home, within=as_nobody("bpf", "perfmon"))
    assert found["calls_observed"] is True
    assert any("CAP_SYS_PTRACE" in problem for problem in found["problems"])


@pytest.mark.parametrize(("right", "other"), [("bpf", "CAP_PERFMON"), ("perfmon", "CAP_BPF")])
@pytest.mark.mainly("perfmon-CAP_BPF")
def test_one_capability_alone_names_the_other(home: Path, right: str, other: str) -> None:
    assert is_rootless(frame(home, within=as_nobody(right)), f"no eBPF without {other}")


# -- of the file: setcap -------------------------------------------------------------------------


def interpreter(home: Path, *rights: str) -> tuple[str, ...]:
    """Runs a command's words by a copy of this interpreter whose file has these rights, as nobody."""
    if shutil.which("setcap") is None:
        skip_or_fail("setcap not found: apt-get install libcap2-bin")
    names = ("dac_read_search", *rights)  # this checkout and the standard library lie in root's home
    file = home / "python"
    shutil.copy(Path(sys.executable).resolve(), file)
    subprocess.run(["setcap", ",".join(f"cap_{name}" for name in names) + "+ep", file], check=True)
    paths = f"{ROOT}:{sysconfig.get_path('purelib')}"
    command = ("env", f"PYTHONHOME={sys.base_prefix}", f"PYTHONPATH={paths}", *AS_NOBODY, str(file))
    shown = subprocess.run([*command, "-c", EFFECTIVE], capture_output=True, text=True, check=False)
    if shown.returncode or int(shown.stdout, 16) != sum(1 << CAPABILITIES[name] for name in names):
        skip_or_fail(
            f"file capabilities do not count for a copied interpreter: {shown.stderr or shown.stdout}"
        )
    return command


@pytest.mark.ebpf
@pytest.mark.long
def test_rights_of_the_file_trace_the_calls_of_one_s_own_processes_exactly(home: Path) -> None:
    """Such a process is started in the loader's secure mode, and may not read all of its own /proc."""
    python = interpreter(home, "bpf", "perfmon")
    found = recorded(home, (*python, "-m", "gputop"))
    assert found["calls_observed"] is True, found["problems"]
    assert not any("CAP_" in problem for problem in found["problems"])
    assert counted(found) == {"cudaMemset": 1234}


@pytest.mark.parametrize(("right", "other"), [("bpf", "CAP_PERFMON"), ("perfmon", "CAP_BPF")])
@pytest.mark.mainly("bpf-CAP_PERFMON")
def test_one_right_of_the_file_names_the_other(home: Path, right: str, other: str) -> None:
    program = (*interpreter(home, right), "-m", "gputop")
    assert is_rootless(frame(home, program=program), f"no eBPF without {other}")


# -- perf's uprobes ------------------------------------------------------------------------------


@pytest.mark.ebpf
@pytest.mark.long
def test_perf_s_uprobes_work_with_two_capabilities_or_name_the_one_they_take(home: Path) -> None:
    """Kernels differ in that: what must not be is a view without calls that does not say why."""
    env = environment(home) | {"GPUTOP_ATTACH": "perf"}
    found = recorded(home, (*as_nobody("bpf", "perfmon"), *GPUTOP), env)
    if found["calls_observed"]:
        assert counted(found) == {"cudaMemset": 1234}
    else:
        assert is_rootless(found, "CAP_SYS_ADMIN")


@pytest.mark.parametrize(
    ("code", "allowed"),
    [(errno.EACCES, False), (errno.EPERM, False), (errno.EINVAL, True), (errno.ENOENT, True)],
)
def test_who_may_probe_is_told_that_a_folder_is_no_file(
    monkeypatch: pytest.MonkeyPatch, code: int, allowed: bool
) -> None:
    """By recorded facts: EACCES without CAP_SYS_ADMIN since Linux 6.16, and in updates of older ones."""

    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("probes.ebpf.attach_perf.open_event", refuse)
    assert attach_perf.is_allowed(attach_perf.Pmu(8, 1)) is allowed
