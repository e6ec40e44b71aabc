"""Recorded facts for the tests of `gputop check`: a machine on which all works, to take things from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gputop.checks import check_kernel
from gputop.checks.check_libraries import LibraryCheck, SelfHit, Symbol
from gputop.checks.distribution import Distribution
from gputop.checks.fact import Section
from probes import api
from probes.code.libraries import Target
from probes.ebpf.rights import Rights

DEBIAN = Distribution("Debian", "apt-get install python3-bpfcc", "apt-get install nvidia-driver")
NEW_KERNEL = check_kernel.KernelCheck(
    release="6.18.0",
    architecture="x86_64",
    path=check_kernel.MULTI,
    problem="",
    forced="",
    btf="/sys/kernel/btf/vmlinux",
    btf_error="",
    sys_masked=False,
    tracefs="/sys/kernel/tracing",
)
ALL_RIGHTS = Rights(
    root=True,
    cap_bpf=True,
    cap_perfmon=True,
    cap_sys_admin=True,
    cap_sys_ptrace=True,
    effective=0x1FFFFFFFFFF,
    initial_user_namespace=True,
    lockdown="none",
    perf_event_paranoid=2,
    unprivileged_bpf_disabled=2,
    btf=True,
    seccomp=0,
    no_new_privileges=False,
    hidepid=False,
    tracefs=True,
    bcc="/usr/lib/python3/dist-packages/bcc",
)
NO_RIGHTS = replace(
    ALL_RIGHTS,
    root=False,
    cap_bpf=False,
    cap_perfmon=False,
    cap_sys_admin=False,
    cap_sys_ptrace=False,
    effective=0,
)
CUDART = LibraryCheck(
    target=Target(Path("/opt/libcudart.so.12"), "/opt/libcudart.so.12", (0xFE00, 7), api.RUNTIME, 12),
    pids=(4, 5),
    build_id="0123456789abcdef",
    soname="libcudart.so.12",
    symbols=(
        Symbol("cudaMalloc", 64, cheap=True, hits=3, minimal=True),
        Symbol("cudaHostAlloc", 128, cheap=False, hits=4),
    ),
    witness=Symbol("cudaRuntimeGetVersion", 32, cheap=False),
    version="12.9",
    self_hit=SelfHit("cudaRuntimeGetVersion", 5, 5),
)


def texts(section: Section, status: str) -> str:
    """All lines of a section that have a status, in one."""
    return "\n".join(f"{fact.text} -> {fact.fix}" for fact in section.facts if fact.status == status)
