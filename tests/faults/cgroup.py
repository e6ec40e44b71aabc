"""A control group with a CPU quota, of version 1 or 2, whichever this machine has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


def available() -> bool:
    """Whether a quota can be set here."""
    if os.geteuid() != 0:
        return False
    if (_V1 / "cpu.cfs_quota_us").exists() or (_V1 / "cpu.shares").exists():
        return True
    controllers = _V2 / "cgroup.controllers"
    return controllers.exists() and "cpu" in controllers.read_text().split()


@dataclass(frozen=True, slots=True)
class Group:
    """A group's directory."""

    path: Path

    @property
    def paths(self) -> list[str]:
        """As the launcher wants them."""
        return [str(self.path)]

    def throttled_ns(self) -> int:
        """How long it was throttled, as the kernel counts."""
        facts = dict(line.split() for line in (self.path / "cpu.stat").read_text().splitlines())
        if "throttled_usec" in facts:
            return int(facts["throttled_usec"]) * 1000
        return int(facts["throttled_time"])


@contextlib.contextmanager
def cpu_group(share: float, weight: int = 1 << 16) -> Iterator[Group]:
    """A group that may use so much of one CPU, and has it before others unless ``weight`` is 1024."""
    first = (_V1 / "cpu.shares").exists()
    path = (_V1 if first else _V2) / f"gputop-faults-{os.getpid()}"
    if not first:
        (_V2 / "cgroup.subtree_control").write_text("+cpu")
    path.mkdir(exist_ok=True)
    quota = int(_PERIOD_US * share)
    try:
        if first:
            (path / "cpu.shares").write_text(str(weight))
            (path / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (path / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (path / "cpu.weight").write_text(str(min(weight * 100 // 1024, 10_000)))
            (path / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        yield Group(path)
    finally:
        path.rmdir()
