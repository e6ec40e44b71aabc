"""The rights of this process to observe, and the commands that give more.

``read_rights`` only reads; nothing is loaded or attached. ``missing`` makes sentences.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from probes.ebpf.build import compiler

CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF = 19, 21, 38, 39  # linux/capability.h
_ALL_USERS = 4294967295  # uid_map of the initial user namespace: 0 0 4294967295

# ID or ID_LIKE of /etc/os-release -> the command that installs bcc
_BCC_COMMANDS = {
    "debian": "apt-get install python3-bpfcc",
    "ubuntu": "apt-get install python3-bpfcc",
    "fedora": "dnf install python3-bcc",
    "rhel": "dnf install python3-bcc",
    "suse": "zypper install python3-bcc",
    "arch": "pacman -S python-bcc",
    "alpine": "apk add py3-bcc",
}


@dataclass(frozen=True, slots=True)
class Rights:
    """Raw facts about this process and this kernel; ``None`` where the kernel does not report it.

    Attributes:
        root: The effective user is root.
        cap_bpf: Effective capability, as the three that follow.
        cap_perfmon: Needed with ``cap_bpf`` to load and attach.
        cap_sys_admin: Stands for both of them.
        cap_sys_ptrace: Needed to read maps and libraries of other users' processes.
        effective: All effective capabilities as a bit mask.
        initial_user_namespace: Capabilities of another user namespace do not count for eBPF.
        lockdown: ``none``, ``integrity`` or ``confidentiality``; "" where there is no lockdown.
        perf_event_paranoid: Counts only without CAP_PERFMON.
        unprivileged_bpf_disabled: Counts only without CAP_BPF.
        btf: The kernel's type information can be read.
        seccomp: 0 none, 1 strict, 2 filtered: a filter may refuse bpf(2) whatever the capabilities.
        no_new_privileges: Neither sudo nor file capabilities can add rights.
        hidepid: /proc hides processes of other users.
        tracefs: tracefs is mounted and can be read; gputop itself does not need it.
        bcc: Folder of the distribution's bcc package, "" when there is none.
    """

    root: bool
    cap_bpf: bool
    cap_perfmon: bool
    cap_sys_admin: bool
    cap_sys_ptrace: bool
    effective: int
    initial_user_namespace: bool
    lockdown: str
    perf_event_paranoid: int | None
    unprivileged_bpf_disabled: int | None
    btf: bool
    seccomp: int
    no_new_privileges: bool
    hidepid: bool
    tracefs: bool
    bcc: str

    @property
    def may_trace(self) -> bool:
        """Capabilities suffice to try eBPF; only trying shows whether the kernel accepts the probes."""
        return self.cap_sys_admin or (self.cap_bpf and self.cap_perfmon)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None


def _status(proc: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in _text(proc / "self/status").splitlines())
    return {key: value.strip() for key, _, value in lines}


def _readable(path: Path) -> bool:
    """True if a file has content; those masked by a container exist, and are empty."""
    try:
        with path.open("rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def read_rights(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Rights:
    """The rights of this process."""
    status = _status(proc)
    effective = int(status.get("CapEff", "0") or "0", 16)
    kernel = proc / "sys/kernel"
    users = _text(proc / "self/uid_map").split()
    return Rights(
        root=os.geteuid() == 0,
        cap_bpf=bool(effective >> CAP_BPF & 1),
        cap_perfmon=bool(effective >> CAP_PERFMON & 1),
        cap_sys_admin=bool(effective >> CAP_SYS_ADMIN & 1),
        cap_sys_ptrace=bool(effective >> CAP_SYS_PTRACE & 1),
        effective=effective,
        initial_user_namespace=not users or users == ["0", "0", str(_ALL_USERS)],
        lockdown=_text(sys / "kernel/security/lockdown").partition("[")[2].partition("]")[0],
        perf_event_paranoid=_number(kernel / "perf_event_paranoid"),
        unprivileged_bpf_disabled=_number(kernel / "unprivileged_bpf_disabled"),
        btf=_readable(sys / "kernel/btf/vmlinux"),
        seccomp=int(status.get("Seccomp", "0") or "0"),
        no_new_privileges=status.get("NoNewPrivs") == "1",
        hidepid=not _readable(proc / "1/stat"),  # hidden as all processes of other users
        tracefs=_readable(sys / "kernel/tracing/events/sched/sched_switch/format"),
        bcc=next(map(str, compiler.bcc_packages()), ""),  # found without importing it
    )


def install_bcc(release: Path = Path("/etc/os-release")) -> str:
    """The command that installs bcc on this distribution."""
    lines = (line.partition("=") for line in _text(release).splitlines())
    facts = {key: value.strip("\"'") for key, _, value in lines}
    for name in (facts.get("ID", ""), *facts.get("ID_LIKE", "").split()):
        if name in _BCC_COMMANDS:
            return _BCC_COMMANDS[name]
    return "install bcc's Python package with the package manager of your distribution"


def missing(rights: Rights) -> list[str]:
    """One sentence, with its fix, for each thing that stands in the way of live tracing."""
    reasons = _missing_capabilities(rights)
    if rights.lockdown == "confidentiality":
        reasons.append(
            "the kernel is locked down (confidentiality), so no eBPF program may read it: "
            "boot with lockdown=integrity, or without Secure Boot's lockdown"
        )
    if not rights.btf:
        reasons.append(
            "the kernel's type information /sys/kernel/btf/vmlinux cannot be read: use a kernel built with "
            "CONFIG_DEBUG_INFO_BTF; in a container, mount the host's /sys (docker run -v /sys:/sys:ro)"
        )
    if not rights.bcc:
        reasons.append(f"bcc is not installed: {install_bcc()} (PyPI's package bcc is something else)")
    return reasons


def _missing_capabilities(rights: Rights) -> list[str]:
    if not rights.may_trace:
        lacking = [
            name
            for name, there in (("CAP_BPF", rights.cap_bpf), ("CAP_PERFMON", rights.cap_perfmon))
            if not there
        ]
        if rights.root:
            return [
                f"this root has no {' and no '.join(lacking)} (a container?): start the container with "
                "--cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE --pid host, or run gputop on the host"
            ]
        if rights.no_new_privileges:
            return ["this process may not gain privileges (no_new_privs): run gputop as root outside of it"]
        return [f"no eBPF without root ({' and '.join(lacking)} missing): sudo gputop"]
    if not rights.initial_user_namespace:
        return [
            "root of a user namespace may not load eBPF programs (rootless container?): "
            "run gputop as root on the host"
        ]
    return []
