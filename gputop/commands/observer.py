"""The choice of the source: eBPF where privileges allow it, else procfs, with the reason."""

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
    """Start a source; return it with the reason why it is not eBPF, "" if it is."""
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
    return f"no eBPF without {lacking}: {_UNSEEN}; to see them: {as_root(command)}"


def _limits(rights: Rights, pids: tuple[int, ...] | None, command: str) -> tuple[str, ...]:
    """Return what partial privileges leave out although eBPF works."""
    if rights.root or rights.cap_sys_ptrace or (pids is not None and all(map(_is_own, pids))):
        return ()
    return (
        "without CAP_SYS_PTRACE the libraries of other users' processes are not found: only yours and the "
        f"system's are traced; for all: {as_root(command)}",
    )


def _is_own(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:  # the process has ended
        return True


def _refused(error: ProbeError, rights: Rights) -> str:
    """Return why the probes did not start: missing privileges if known, else the probes' own error."""
    reasons = missing(rights) or [str(error)]
    if not missing(rights) and rights.seccomp == _SECCOMP_FILTER:
        reasons.append(
            "a seccomp filter is in force and may refuse bpf(2): "
            "start the container with --security-opt seccomp=unconfined"
        )
    return f"{'; '.join(reasons)}; until then {_UNSEEN}"


def as_root(command: str) -> str:
    """Return the command with sudo, or with "(as root)" where sudo is not installed."""
    return f"sudo {command}" if shutil.which("sudo") else f"{command} (as root)"


def own_command(options: argparse.Namespace) -> str:
    """Return the typed command in a form that sudo finds in its own search path.

    A private recording holds the text, so it has no arguments then.
    """
    started = Path(sys.argv[0])
    if shutil.which("gputop", path=_SUDO_PATH):
        program = "gputop"
    elif started.name == "gputop":
        program = shlex.quote(str(started.absolute()))
    else:
        program = shlex.join(isolated("gputop"))  # root's Python must not import from the working folder
    return program if options.private else " ".join([program, *map(shlex.quote, sys.argv[1:])])
