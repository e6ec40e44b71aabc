"""Chooses how to observe: eBPF as far as the rights go, else procfs, with a sentence that says why."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from gputop.process.isolation import isolated
from probes.ebpf.loader import ProbeError
from probes.ebpf.rights import Rights, missing, read_rights
from probes.observe.live_source import LiveSource
from probes.observe.plan import LivePlan
from probes.observe.procfs_source import ProcfsSource
from probes.source import Observer

_LOG = logging.getLogger(__name__)
_SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_UNSEEN = "CUDA calls and preempting threads are not shown"
_SECCOMP_FILTER = 2


def start_observer(plan: LivePlan, command: str) -> tuple[Observer, str]:
    """Starts a source.

    Returns:
        The source, and why it is not eBPF ("" when it is).
    """
    rights = read_rights()
    if rights.may_trace and rights.initial_user_namespace:
        limits = _limits(rights, plan.pids, command)
        live = LiveSource(replace(plan, problems=(*plan.problems, *limits)))
        try:
            live.start()
        except ProbeError as error:
            reason = _refused(error, rights)
            _LOG.debug("the probes did not start", exc_info=True)
        else:
            _LOG.info("observing by eBPF")
            return live, ""
    else:
        reason = _no_rights(rights, command)
    _LOG.info("observing without eBPF: %s", reason)
    source = ProcfsSource(plan, reason)
    source.start()
    return source, reason


def _no_rights(rights: Rights, command: str) -> str:
    if rights.root or rights.may_trace or rights.no_new_privileges:
        return f"{missing(rights)[0]}; until then {_UNSEEN}"
    lacking = "root"
    if rights.cap_bpf or rights.cap_perfmon:  # setcap was tried, and one forgotten
        lacking = "CAP_PERFMON" if rights.cap_bpf else "CAP_BPF"
    return f"no eBPF without {lacking}: {_UNSEEN}; for them: {as_root(command)}"


def _limits(rights: Rights, pids: tuple[int, ...] | None, command: str) -> tuple[str, ...]:
    """What partial rights leave out although eBPF works."""
    if rights.root or rights.cap_sys_ptrace or (pids is not None and all(map(_is_own, pids))):
        return ()
    return (
        "without CAP_SYS_PTRACE the libraries of other users' processes are not found, only yours and "
        f"those of the system are traced; for all: {as_root(command)}",
    )


def _is_own(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:  # it ended: nothing to read there for anybody
        return True


def _refused(error: ProbeError, rights: Rights) -> str:
    """Why the probes did not start: what is known to be missing, else what the probes say."""
    reasons = missing(rights) or [str(error)]
    if not missing(rights) and rights.seccomp == _SECCOMP_FILTER:
        reasons.append(
            "a seccomp filter is in force and may refuse bpf(2): "
            "start the container with --security-opt seccomp=unconfined"
        )
    return f"{'; '.join(reasons)}; until then {_UNSEEN}"


def as_root(command: str) -> str:
    """The command with what gives it root's rights; without sudo on this machine, in words."""
    return f"sudo {command}" if shutil.which("sudo") else f"{command} (as root)"


def own_command(options: argparse.Namespace) -> str:
    """What the user typed, so that sudo finds it: sudo has a search path of its own.

    A private recording holds the text, so it names no arguments then.
    """
    started = Path(sys.argv[0])
    if shutil.which("gputop", path=_SUDO_PATH):
        program = "gputop"
    elif started.name == "gputop":
        program = shlex.quote(str(started.absolute()))
    else:
        program = shlex.join(isolated("gputop"))  # root's Python must not look into the working folder
    return program if options.private else " ".join([program, *map(shlex.quote, sys.argv[1:])])
