"""Which container a process lives in, as the names of its control groups tell."""

from __future__ import annotations

import re

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

    Args:
        cgroups: The text of that file.

    Returns:
        Kind and id (``docker 3f2a9c0d1e4b``), or ``lxc NAME``.
    """
    found = _ID.search(cgroups)
    if found is not None:
        kind = next((name for mark, name in _KINDS if mark in cgroups), "container")
        return f"{kind} {found[1][:_SHOWN].decode()}"
    named = _NAMED.search(cgroups)
    return f"lxc {named[1].decode(errors='replace')}" if named is not None else ""
