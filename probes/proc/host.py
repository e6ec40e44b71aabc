"""Figures of this machine, as the host line of a top shows them: CPU, load, memory, pressure, disks, network.

Shares and rates are of the time since the last sample, from the kernel's own sums: no longer average hides
that second. Figures that this kernel does not report have no key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from probes.proc.procfs import words_of
from probes.source import HOST, Sample

LOOK_NS = 1_000_000_000
_SECTOR = 512
_SYS = Path("/sys")
_SENSORS = {"coretemp", "k10temp", "zenpower", "cpu_thermal"}  # of CPUs, by their drivers' names
_MOST_SENSORS = 16  # one a socket is enough
_OF_ALL = ("Package id", "Tctl", "Tdie")  # the sensor of a whole CPU
_IDLE = (3, 4)  # columns of a line of /proc/stat: idle, waiting for a disk
_WHOLE_DISKS = ("sd", "vd", "xvd", "nvme", "mmcblk", "hd")
Sums = dict[str, int]


class HostFigures:
    """Counts from now on."""

    def __init__(self, now_ns: int, proc: Path = Path("/proc"), sys: Path = _SYS) -> None:
        self._proc, self._sys = proc, sys
        self._sensors = _sensors(sys)
        self._folders = _folders(proc)
        self._busy = self._read_busy()
        self._at_ns, self._due_ns = now_ns, now_ns
        self._cores = self._read_cores()
        self._sums = self._read_sums()

    def samples(self, now_ns: int) -> Iterator[Sample]:
        """The figures, once a second."""
        if now_ns < self._due_ns or now_ns <= self._at_ns:
            return
        cores, sums = self._read_cores(), self._read_sums()
        passed_ns = now_ns - self._at_ns
        data: dict[str, object] = {**self._memory(), **self._counts(), **self._cpu()}
        for words in words_of(self._proc / "uptime")[:1]:
            data["uptime_s"] = int(float(words[0]))
        if cpus := [
            _share(now, before) for now, before in zip(cores, self._cores, strict=False) if now != before
        ]:
            data["cores_percent"] = cpus
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
                if name in ("received", "sent"):
                    data[f"{name}_bytes"] = value
        busy = self._read_busy()
        if shares := [max(busy[disk] - self._busy[disk], 0) for disk in busy.keys() & self._busy.keys()]:
            data["disk_busy_percent"] = round(min(100 * 1e6 * max(shares) / passed_ns, 100.0), 1)
        self._cores, self._sums, self._busy, self._at_ns = cores, sums, busy, now_ns
        self._due_ns = now_ns + LOOK_NS
        yield Sample(HOST, now_ns, data)

    def _read_cores(self) -> list[tuple[int, int]]:
        """(idle, all) of each CPU, in ticks."""
        found = []
        for words in words_of(self._proc / "stat")[1:]:
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
            for words in words_of(self._proc / f"pressure/{what}")[:1]:
                total = next((word[6:] for word in words if word.startswith("total=")), "")
                if words[:1] == ["some"] and total.isdecimal():
                    found[f"pressure_{what}"] = int(total)
        return found

    def _disks(self) -> Sums:
        rows = self._whole_disks()
        if not rows:
            return {}
        return {
            "disk_read": sum(int(words[5]) for words in rows) * _SECTOR,
            "disk_write": sum(int(words[9]) for words in rows) * _SECTOR,
        }

    def _read_busy(self) -> Sums:
        """Milliseconds in which each disk had something to do."""
        return {words[2]: int(words[12]) for words in self._whole_disks() if len(words) > 12}

    def _whole_disks(self) -> list[list[str]]:
        """Lines of whole disks: partitions and stacked devices would count twice."""
        return [
            words
            for words in words_of(self._proc / "diskstats")
            if len(words) > 9
            and words[2].startswith(_WHOLE_DISKS)
            and not os.path.exists(self._sys / "class/block" / words[2] / "partition")
        ]

    def _counts(self) -> Sums:
        """Processes and threads of all users."""
        found = {}
        for words in words_of(self._proc / "loadavg")[:1]:
            found["threads"] = int(words[3].partition("/")[2])
        if self._folders:
            found["processes"] = max(os.stat(self._proc).st_nlink - self._folders, 0)
        return found

    def _cpu(self) -> dict[str, object]:
        """Clock of the first CPU, temperature of the hottest."""
        found: dict[str, object] = {}
        if clock := _number(self._sys / "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"):
            found["cpu_mhz"] = clock // 1000
        elif clock := _clock(self._proc):
            found["cpu_mhz"] = clock
        if heat := [one for one in map(_number, self._sensors) if one is not None]:
            found["cpu_temperature_celsius"] = max(heat) // 1000
        return found

    def _network(self) -> Sums:
        """Of all interfaces but the loopback; those of gputop's network namespace."""
        rows = [
            line.replace(":", " ").split()
            for line in (" ".join(words) for words in words_of(self._proc / "net/dev")[2:])
            if ":" in line and not line.startswith("lo:")
        ]
        if not rows:
            return {}
        return {
            "received": sum(int(words[1]) for words in rows),
            "sent": sum(int(words[9]) for words in rows),
        }

    def _load(self) -> list[float]:
        for words in words_of(self._proc / "loadavg")[:1]:
            return [float(word) for word in words[:3]]
        return []

    def _memory(self) -> dict[str, int]:
        names = {
            "MemTotal:": "memory_total_bytes",
            "MemAvailable:": "memory_available_bytes",
            "MemFree:": "memory_free_bytes",
            "Cached:": "memory_cached_bytes",
            "SwapTotal:": "swap_total_bytes",
            "SwapFree:": "swap_free_bytes",
        }
        return {
            names[words[0]]: int(words[1]) << 10
            for words in words_of(self._proc / "meminfo")
            if len(words) > 1 and words[0] in names
        }


def _share(now: tuple[int, int], before: tuple[int, int]) -> float:
    passed = max(now[1] - before[1], 1)
    return round(min(max(100 * (1 - (now[0] - before[0]) / passed), 0.0), 100.0), 1)


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _clock(proc: Path) -> int | None:
    """MHz of the first CPU; the rest of the file is not made, which needs milliseconds with many CPUs."""
    try:
        with (proc / "cpuinfo").open("rb", buffering=0) as file:
            text = file.read(1024).decode(errors="replace")
    except OSError:
        return None
    found = re.search(r"^cpu MHz\s*: (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def _sensors(sys: Path) -> list[Path]:
    """The files of the CPUs' temperatures: of whole CPUs, else of each driver's first sensor."""
    found: list[Path] = []
    for driver in sorted(sys.glob("class/hwmon/hwmon*/name"))[:_MOST_SENSORS]:
        try:
            if driver.read_text().strip() not in _SENSORS:
                continue
            whole = [
                label.with_name(label.name.replace("_label", "_input"))
                for label in sorted(driver.parent.glob("temp*_label"))
                if label.read_text().startswith(_OF_ALL)
            ]
        except OSError:
            continue
        found += whole[:1] or [driver.with_name("temp1_input")]
    return found


def _folders(proc: Path) -> int:
    """Folders of procfs that are of no process: its links are of these, of processes, and two of its own.

    0 where that is not procfs, or it does not count like this.
    """
    try:
        with os.scandir(proc) as entries:
            folders = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        others = 2 + sum(not name.isdigit() for name in folders)
        counts = any(name.isdigit() for name in folders) and os.stat(proc).st_nlink > others
        return others if counts else 0
    except OSError:
        return 0
