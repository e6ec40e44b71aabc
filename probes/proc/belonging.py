"""Which container a process lives in, by the names of its control groups."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# docker, containerd, CRI-O and podman name a container's control group by its id of 64 hex digits
_ID = re.compile(rb"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
_SHOWN = 12  # digits of an id, as `docker ps` shows it
_NAMED = re.compile(rb"/(?:lxc\.payload\.|lxc/|machine-)([\w.\\-]{1,64})")
_KINDS = (
    (b"kubepods", "kubernetes"),
    (b"docker", "docker"),
    (b"libpod", "podman"),
    (b"crio", "cri-o"),
    (b"containerd", "containerd"),
)


def container_of(cgroups: bytes) -> str:
    """The container that a list of control groups (/proc/PID/cgroup) names; "" when it names none.

    Returns:
        Kind and id (``docker 3f2a9c0d1e4b``), or ``lxc NAME``.
    """
    found = _ID.search(cgroups)
    if found is not None:
        kind = next((name for mark, name in _KINDS if mark in cgroups), "container")
        return f"{kind} {found[1][:_SHOWN].decode()}"
    named = _NAMED.search(cgroups)
    return f"lxc {named[1].decode(errors='replace')}" if named is not None else ""


# Owners of a process beyond its user: pod, container, job, rank; from control groups, variables, log
# folders.

# the only variables that are read
VARIABLES = (
    b"SLURM_JOB_ID", b"SLURM_STEP_ID", b"SLURM_PROCID", b"SLURM_LOCALID", b"SLURM_NTASKS",
    b"SLURM_STEP_NUM_TASKS",
    b"RANK", b"LOCAL_RANK", b"WORLD_SIZE", b"TORCHELASTIC_RUN_ID",
    b"OMPI_COMM_WORLD_RANK", b"OMPI_COMM_WORLD_LOCAL_RANK", b"OMPI_COMM_WORLD_SIZE", b"PMI_RANK", b"PMI_SIZE",
    b"JOB_COMPLETION_INDEX", b"RAY_JOB_ID",
)  # fmt: skip
KEYS = (
    "pod", "namespace", "pod_container", "job_kind", "job_id", "job_step", "rank", "local_rank", "world_size",
)  # fmt: skip
# key -> variables with it, the surest first
_RANKS = {
    "rank": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"),
    "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
}
_JOBS = (("SLURM_JOB_ID", "slurm"), ("RAY_JOB_ID", "ray"), ("TORCHELASTIC_RUN_ID", "torchelastic"))
_JOB = re.compile(rb"slurm[^\n]*/job_(\d{1,12})(?:/step_([\w.]{1,32}))?")
# steps without a number of their own, as SLURM_STEP_ID has them and as squeue calls them
_STEPS = {"4294967290": "interactive", "4294967291": "batch", "4294967292": "extern"}
_POD = re.compile(rb"pod([0-9a-f]{8}[-_](?:[0-9a-f]{4}[-_]){3}[0-9a-f]{12})")
_CONTAINER = re.compile(rb"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
# /var/log/containers: POD_NAMESPACE_CONTAINER-ID.log; /var/log/pods: NAMESPACE_POD_UID
_LOG = re.compile(r"([a-z0-9.-]{1,253})_([a-z0-9-]{1,63})_([a-z0-9-]{1,63})-([0-9a-f]{64})\.log\Z")
_FOLDER = re.compile(r"([a-z0-9-]{1,63})_([a-z0-9.-]{1,253})_([0-9a-f-]{36})\Z")
_WORD = re.compile(r"[\w.:-]{1,64}\Z")
KNOWN_S = 5.0  # so long a listing is believed
_MOST = 10_000  # files of a folder that are read


class Pods:
    """The kubelet's log folders, listed when a pod is not known."""

    def __init__(self, root: str = "/var/log") -> None:
        self._root = root
        self._read = -KNOWN_S
        self._containers: dict[str, tuple[str, str, str]] = {}  # id -> pod, namespace, container
        self._pods: dict[str, tuple[str, str]] = {}  # uid -> pod, namespace

    def of(self, uid: str, container: str) -> dict[str, str]:
        """(pod, container) by the folders' names; "" for an unknown one."""
        if container not in self._containers and uid not in self._pods:
            self._list()
        if container in self._containers:
            return dict(zip(("pod", "namespace", "pod_container"), self._containers[container], strict=True))
        if uid in self._pods:
            return dict(zip(("pod", "namespace"), self._pods[uid], strict=True))
        return {}

    def _list(self) -> None:
        if time.monotonic() - self._read < KNOWN_S:
            return
        self._read = time.monotonic()
        self._containers, self._pods = {}, {}
        for name in _names(f"{self._root}/containers"):
            if (found := _LOG.match(name)) is not None:
                self._containers[found[4]] = found[1], found[2], found[3]
        for name in _names(f"{self._root}/pods"):
            if (found := _FOLDER.match(name)) is not None:
                self._pods[found[3]] = found[2], found[1]


def _names(path: str) -> list[str]:
    found: list[str] = []
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            found.append(entry.name)
            if len(found) >= _MOST:
                break
    return found


PODS = Pods()


def _step(variables: Mapping[str, str], job: re.Match[bytes] | None) -> str:
    """Of a process of Slurm's, as squeue calls it; "" where it is in none, as a command of salloc's."""
    if job is not None and job[2]:
        # before the variable: a script that a task submits has that of the task's step
        return job[2].decode()
    step = variables.get("SLURM_STEP_ID", "")
    if _WORD.match(step):
        return _STEPS.get(step, step)
    # the script of a job has a task's number, but no step's
    return "batch" if "SLURM_PROCID" in variables else ""


def belonging(cgroups: bytes, variables: Mapping[str, str], pods: Pods = PODS) -> dict[str, Any]:
    """The job, container or pod of a process; known ones of ``KEYS``.

    Args:
        cgroups: The text of ``/proc/PID/cgroup``.
        variables: Those of ``VARIABLES`` that it had at its start.
        pods: The kubelet's folders.
    """
    found: dict[str, Any] = {}
    for variable, kind in _JOBS:
        if _WORD.match(variables.get(variable, "")):
            found |= {"job_kind": kind, "job_id": variables[variable]}
            break
    job = _JOB.search(cgroups)
    if "job_kind" not in found and job is not None:
        found |= {"job_kind": "slurm", "job_id": job[1].decode()}
    if found.get("job_kind") == "slurm" and (step := _step(variables, job)):
        found["job_step"] = step
    if not found.get("job_step", "").isdecimal() and "SLURM_JOB_ID" in variables:
        # a script or a shell is no rank of the job's tasks, though the variables have their number
        variables = {name: value for name, value in variables.items() if not name.startswith("SLURM_")}
    for key, names in _RANKS.items():
        number = next((variables[name] for name in names if variables.get(name, "").isdecimal()), "")
        if number and len(number) < 10:
            found[key] = int(number)
    if b"kubepods" in cgroups:
        pod, container = _POD.search(cgroups), _CONTAINER.search(cgroups)
        uid = pod[1].decode().replace("_", "-") if pod is not None else ""
        found |= pods.of(uid, container[1].decode() if container is not None else "")
    return found
