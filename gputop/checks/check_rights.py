"""Rights of this process: capabilities, lockdown, seccomp, hidepid."""

from __future__ import annotations

from dataclasses import asdict, replace

from gputop.checks.fact import Fact, Section, missing, note, ok
from probes.ebpf import rights
from probes.ebpf.rights import Rights

_FILTERED = 2  # Seccomp: of /proc/PID/status


def _blocking(found: Rights) -> list[Fact]:
    """Missing rights; bcc and type information have sections of their own."""
    facts = []
    for sentence in rights.missing(replace(found, btf=True, bcc="elsewhere")):
        text, _, fix = sentence.partition(": ")
        facts.append(missing(text, fix))
    return facts


def _capabilities(found: Rights) -> list[Fact]:
    if not found.may_trace:
        text = "without rights gputop shows NVML, and switches and waits of your own processes"
        return [note(text, "sudo gputop adds CUDA calls, wakeups and all users' processes")]
    user = "root" if found.root else "not root, but with enough capabilities"
    capabilities = ("cap_bpf", "cap_perfmon", "cap_sys_admin", "cap_sys_ptrace")
    names = [name.upper() for name in capabilities if getattr(found, name)]
    facts = [ok(f"{user}: {', '.join(names)}")]
    if not found.cap_sys_ptrace:
        facts.append(
            note(
                "no CAP_SYS_PTRACE: libraries of other users' processes are not visible",
                "sudo gputop, or --cap-add SYS_PTRACE",
            )
        )
    return facts


def _kernel_policy(found: Rights) -> list[Fact]:
    facts = []
    if found.lockdown != "confidentiality":
        facts.append(ok(f"lockdown: {found.lockdown or 'this kernel has none'}"))
    paranoid = found.perf_event_paranoid
    if paranoid is not None:
        meaning = "does not matter with CAP_PERFMON" if found.may_trace else "not the obstacle"
        facts.append(note(f"perf_event_paranoid is {paranoid}: {meaning}"))
    return facts


def _container(found: Rights) -> list[Fact]:
    facts = []
    if found.seccomp == _FILTERED:
        facts.append(
            note(
                "seccomp filters system calls here (a container?): bpf(2) may be refused",
                "docker run --security-opt seccomp=unconfined, or --privileged",
            )
        )
    else:
        facts.append(ok("seccomp: no filter"))
    if not found.initial_user_namespace and not found.may_trace:
        facts.append(note("a user namespace: its root cannot load eBPF", "gputop as root on the host"))
    if found.hidepid:
        facts.append(
            note(
                "/proc hides other users' processes (hidepid)",
                "sudo gputop, or mount -o remount,hidepid=0 /proc",
            )
        )
    return facts


def rights_section(found: Rights) -> Section:
    facts = [*_blocking(found), *_capabilities(found), *_kernel_policy(found), *_container(found)]
    return Section("rights", tuple(facts), asdict(found))
