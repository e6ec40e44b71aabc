"""The kernel: which way of attaching it offers, its type information, tracefs."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gputop.checks.fact import Fact, Section, missing, note, ok
from probes import btf

MULTI, PERF, NONE = "uprobe_multi", "perf", "none"
_MULTI_SINCE, _PERF_SINCE = (6, 6), (5, 15)
_TRACEFS_PLACES = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What was found.

    Attributes:
        release: As ``uname -r`` says it.
        architecture: As ``uname -m`` says it.
        path: How functions are probed: ``uprobe_multi``, ``perf`` or ``none``.
        forced: ``GPUTOP_ATTACH`` asks for that path.
        btf: Where type information is looked for.
        btf_error: Why it is of no use; ``""`` when it is complete.
        sys_masked: /sys/kernel is hidden, as in many containers.
        tracefs: Where it is mounted, or ``""``.
    """

    release: str
    architecture: str
    path: str
    forced: bool
    btf: str
    btf_error: str
    sys_masked: bool
    tracefs: str


def attach_path(release: str, environment: Mapping[str, str]) -> tuple[str, bool]:
    """(how this kernel's release lets functions be probed, whether the environment asks for it)."""
    match = re.match(r"(\d+)\.(\d+)", release)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < _PERF_SINCE:
        return NONE, False
    if environment.get("GPUTOP_ATTACH") == "perf":
        return PERF, True
    return (MULTI if version >= _MULTI_SINCE else PERF), False


def _btf_error(path: Path) -> str:
    try:
        btf.read_offsets(path)
    except btf.BtfError as error:
        return str(error)
    return ""


def _tracefs() -> str:
    return next((place for place in _TRACEFS_PLACES if Path(place, "events").is_dir()), "")


def read_kernel(environment: Mapping[str, str] | None = None) -> Kernel:
    """What this machine's kernel offers."""
    path, forced = attach_path(platform.release(), os.environ if environment is None else environment)
    return Kernel(
        release=platform.release(),
        architecture=platform.machine(),
        path=path,
        forced=forced,
        btf=str(btf.VMLINUX),
        btf_error=_btf_error(btf.VMLINUX),
        sys_masked=not btf.VMLINUX.parent.parent.is_dir(),
        tracefs=_tracefs(),
    )


def _release_fact(kernel: Kernel) -> Fact:
    if kernel.path == NONE:
        return missing(
            f"Linux {kernel.release} is older than 5.15: its probes carry no cookies",
            "a kernel of 5.15 or newer; until then NVML and procfs, without root",
        )
    if kernel.path == MULTI:
        return ok(f"Linux {kernel.release}: uprobe_multi, one link a library")
    if kernel.forced:
        return note(f"Linux {kernel.release}: perf-event uprobes, because GPUTOP_ATTACH=perf says so")
    return note(
        f"Linux {kernel.release} has no uprobe_multi: perf-event uprobes on the calls "
        "that totals and idle proofs need",
        "Linux 6.6 or newer traces all calls",
    )


def _architecture_fact(kernel: Kernel) -> Fact:
    if kernel.architecture == "x86_64":
        return ok("x86-64")
    if kernel.architecture == "aarch64":
        return note("arm64: untested")
    return missing(f"{kernel.architecture}: registers not known", "x86-64, or arm64 (untested)")


def _btf_fact(kernel: Kernel) -> Fact:
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


def kernel_section(kernel: Kernel) -> Section:
    """The lines about the kernel."""
    tracefs = f"tracefs on {kernel.tracefs}" if kernel.tracefs else "tracefs is not mounted"
    facts = (
        _release_fact(kernel),
        _architecture_fact(kernel),
        _btf_fact(kernel),
        note(f"{tracefs}: gputop needs none"),
    )
    return Section("kernel", facts, asdict(kernel))
