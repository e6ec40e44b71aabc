"""The kernel: attach method, type information, tracefs."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gputop.checks.fact import Fact, Section, missing, note, ok
from probes.ebpf import loader
from probes.ebpf.build import btf

MULTI, PERF, UNTRIED, NONE = "uprobe_multi", "perf", "untried", "none"
_MULTI_KERNEL = (6, 6)
_MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """Properties of the kernel."""

    release: str  # ``uname -r``
    architecture: str  # ``uname -m``
    path: str  # attach method: ``uprobe_multi``, ``perf``, ``untried`` (rights are missing) or ``none``
    problem: str  # why there is none, or ``""``
    forced: str  # value of ``GPUTOP_ATTACH``, or ``""``
    btf: str  # path of the type information
    btf_error: str  # why it is of no use; ``""`` when it is complete, or when the kernel is too old anyway
    sys_masked: bool  # /sys/kernel is hidden, as in many containers
    tracefs: str  # its mount point, or ``""``


def _attach_path(release: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return (attach method, why there is none)."""
    if problem := loader.kernel_problem(release):
        return NONE, problem
    try:
        multi = loader.uses_multi(environment)
    except loader.ProbeError as error:
        return NONE, str(error)
    return {True: MULTI, False: PERF, None: UNTRIED}[multi], ""


def _btf_error(path: Path, release: str) -> str:
    if loader.kernel_problem(release) and path.exists():
        return ""  # what it lacks came with a newer kernel, which is named already
    try:
        btf.read_layout(path)
    except btf.BtfError as error:
        return str(error)
    return ""


def _tracefs() -> str:
    """From the list of mounts: the mount point may be closed to us."""
    try:
        mounts = [line.split() for line in _MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    places = [mount[1] for mount in mounts if len(mount) > 2 and mount[2] == "tracefs"]
    return min(places, key=len, default="")


def read_kernel(environment: Mapping[str, str] | None = None) -> KernelCheck:
    """Return the properties of this machine's kernel."""
    environment = os.environ if environment is None else environment
    release = platform.release()
    path, problem = _attach_path(release, environment)
    return KernelCheck(
        release=release,
        architecture=platform.machine(),
        path=path,
        problem=problem,
        forced=environment.get(loader.ATTACH_VARIABLE, ""),
        btf=str(btf.VMLINUX),
        btf_error=_btf_error(btf.VMLINUX, release),
        sys_masked=not os.path.isdir(btf.VMLINUX.parent.parent),
        tracefs=_tracefs(),
    )


def _release_fact(kernel: KernelCheck) -> Fact:
    why = f", because {loader.ATTACH_VARIABLE}={kernel.forced}" if kernel.forced else ""
    if kernel.path == NONE:
        fix = (
            f"unset {loader.ATTACH_VARIABLE}"
            if kernel.forced
            else "a newer kernel; until then gputop shows NVML and procfs only"
        )
        return missing(kernel.problem, fix)
    if kernel.path == UNTRIED:
        which = "uprobe_multi" if loader.is_release(kernel.release, _MULTI_KERNEL) else "perf-event uprobes"
        return note(
            f"Linux {kernel.release}: by its version {which}, which cannot be tried without rights",
            "sudo gputop check tries it",
        )
    if kernel.path == MULTI:
        return ok(f"Linux {kernel.release}: uprobe_multi, one link a library{why}")
    text = f"Linux {kernel.release}: perf-event uprobes{why}, on the calls that totals and idle proofs need"
    return note(text, "" if kernel.forced else "Linux 6.6 or newer traces all calls")


def _architecture_fact(kernel: KernelCheck) -> Fact:
    if kernel.architecture == "x86_64":
        return ok("x86-64")
    if kernel.architecture == "aarch64":
        return note("arm64: untested")
    return missing(f"{kernel.architecture}: registers not known", "x86-64, or arm64 (untested)")


def _btf_fact(kernel: KernelCheck) -> Fact:
    if not kernel.btf_error:
        return ok(f"type information (BTF): {kernel.btf}")
    if kernel.sys_masked:
        return missing(
            "type information (BTF): /sys is masked here, so the kernel's cannot be read",
            "docker run -v /sys/kernel:/sys/kernel:ro, or --privileged",
        )
    return missing(
        f"type information (BTF): {kernel.btf_error}",
        "a distribution's own kernel, or one built with CONFIG_DEBUG_INFO_BTF=y",
    )


def kernel_section(kernel: KernelCheck) -> Section:
    tracefs = f"tracefs on {kernel.tracefs}" if kernel.tracefs else "tracefs is not mounted"
    facts = (
        _release_fact(kernel),
        _architecture_fact(kernel),
        _btf_fact(kernel),
        note(f"{tracefs}: gputop needs none"),
    )
    return Section("kernel", facts, asdict(kernel))
