"""Figures of this machine, as the host line of a top shows them: CPU, load, memory, pressure, disks, network.

Shares and rates are of the time since the look before, from the kernel's own sums: no longer average hides
that second. What this kernel does not report has no key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from probes.source import HOST, Sample

LOOK_NS = 1_000_000_000
_SECTOR = 512
_IDLE = (3, 4)  # columns of a line of /proc/stat: idle, waiting for a disk
_WHOLE_DISKS = ("sd", "vd", "xvd", "nvme", "mmcblk", "hd")
Sums = dict[str, int]


class HostFigures:
    """Counts from now on.

    Args:
        proc: Where procfs is.
        now_ns: Of the first look.
    """

    def __init__(self, now_ns: int, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._block = Path("/sys/class/block") if proc == Path("/proc") else proc / "block"
        self._at_ns, self._due_ns = now_ns, now_ns
        self._cores = self._read_cores()
        self._sums = self._read_sums()

    def tell(self, now_ns: int) -> Iterator[Sample]:
        """The figures, once a second.

        Args:
            now_ns: Of the mark.
        """
        if now_ns < self._due_ns or now_ns <= self._at_ns:
            return
        cores, sums = self._read_cores(), self._read_sums()
        passed_ns = now_ns - self._at_ns
        data: dict[str, object] = {**self._memory()}
        for words in self._lines("uptime")[:1]:
            data["uptime_s"] = int(float(words[0]))
        if shares := [
            _share(now, before) for now, before in zip(cores, self._cores, strict=False) if now != before
        ]:
            data["cores_percent"] = shares
        with_load = self._load()
        if with_load:
            data["load"] = with_load
        for name, value in sums.items():
            if name in self._sums:
                grown = max(value - self._sums[name], 0)
                if name.startswith("pressure_"):
                    data[f"{name}_percent"] = round(min(100 * grown * 1000 / passed_ns, 100.0), 1)
                else:
                    data[f"{name}_bytes_per_second"] = grown * 1_000_000_000 // passed_ns
        self._cores, self._sums, self._at_ns = cores, sums, now_ns
        self._due_ns = now_ns + LOOK_NS
        yield Sample(HOST, now_ns, data)

    def _lines(self, name: str) -> list[list[str]]:
        """The words of a file's lines; none where it is not there (PSI may be compiled in and off)."""
        try:
            return [line.split() for line in (self._proc / name).read_text().splitlines()]
        except (OSError, UnicodeDecodeError):
            return []

    def _read_cores(self) -> list[tuple[int, int]]:
        """(idle, all) of each CPU, in ticks."""
        found = []
        for words in self._lines("stat")[1:]:
            if not words or not words[0].startswith("cpu"):
                break
            ticks = [int(word) for word in words[1:9]]  # guests' time is in that of their host already
            found.append((sum(ticks[place] for place in _IDLE if place < len(ticks)), sum(ticks)))
        return found

    def _read_sums(self) -> Sums:
        return {**self._pressure(), **self._disks(), **self._network()}

    def _pressure(self) -> Sums:
        found = {}
        for what in ("cpu", "memory", "io"):
            for words in self._lines(f"pressure/{what}")[:1]:
                total = next((word[6:] for word in words if word.startswith("total=")), "")
                if words[:1] == ["some"] and total.isdecimal():
                    found[f"pressure_{what}"] = int(total)
        return found

    def _disks(self) -> Sums:
        """Of whole disks: partitions, and what lies upon disks, would count twice."""
        rows = [
            words
            for words in self._lines("diskstats")
            if len(words) > 9
            and words[2].startswith(_WHOLE_DISKS)
            and not os.path.exists(self._block / words[2] / "partition")
        ]
        if not rows:
            return {}
        return {
            "disk_read": sum(int(words[5]) for words in rows) * _SECTOR,
            "disk_write": sum(int(words[9]) for words in rows) * _SECTOR,
        }

    def _network(self) -> Sums:
        """Of all interfaces but the loopback; those of gputop's network namespace."""
        rows = [
            line.replace(":", " ").split()
            for line in (" ".join(words) for words in self._lines("net/dev")[2:])
            if ":" in line and not line.startswith("lo:")
        ]
        if not rows:
            return {}
        return {
            "received": sum(int(words[1]) for words in rows),
            "sent": sum(int(words[9]) for words in rows),
        }

    def _load(self) -> list[float]:
        for words in self._lines("loadavg")[:1]:
            return [float(word) for word in words[:3]]
        return []

    def _memory(self) -> dict[str, int]:
        names = {
            "MemTotal:": "memory_total_bytes",
            "MemAvailable:": "memory_available_bytes",
            "Cached:": "memory_cached_bytes",
            "SwapTotal:": "swap_total_bytes",
            "SwapFree:": "swap_free_bytes",
        }
        return {
            names[words[0]]: int(words[1]) << 10
            for words in self._lines("meminfo")
            if len(words) > 1 and words[0] in names
        }


def _share(now: tuple[int, int], before: tuple[int, int]) -> float:
    passed = max(now[1] - before[1], 1)
    return round(min(max(100 * (1 - (now[0] - before[0]) / passed), 0.0), 100.0), 1)
