"""Losses of the whole machine, reported every few seconds as they grow.

Steal is time that a hypervisor withheld, of all CPUs together. Memory pressure (PSI) is time in which
some, or all, of the tasks that wanted to run waited for memory. TCP segments sent again are those of gputop's
network namespace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from probes.proc.procfs import words_of
from probes.source import MACHINE, Sample

LOOK_NS = 5_000_000_000  # /proc/stat costs the kernel a millisecond on a large machine
_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_STEAL = 8  # the column of /proc/stat


class MachineEvents:
    """Counts from now on."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._reported = self._read()
        self._due_ns = 0
        self._first = True

    def samples(self, now_ns: int, *, last: bool = False) -> Iterator[Sample]:
        """The growth since the last report; the first time also without any.

        Figures that this kernel does not count have no key.
        """
        if now_ns < self._due_ns and not last:
            return
        self._due_ns = now_ns + LOOK_NS
        now = self._read()
        added = {
            name: max(value - self._reported[name], 0)
            for name, value in now.items()
            if name in self._reported
        }
        if added and (self._first or any(added.values())):
            yield Sample(MACHINE, now_ns, {**added})
            self._first = False
        self._reported = now

    def _read(self) -> dict[str, int]:
        return {**self._steal(), **self._pressure(), **self._retransmits()}

    def _steal(self) -> dict[str, int]:
        for words in words_of(self._proc / "stat")[:1]:
            if words and words[0] == "cpu" and len(words) > _STEAL:
                return {"steal_ns": int(words[_STEAL]) * _NS_PER_TICK}
        return {}

    def _pressure(self) -> dict[str, int]:
        found = {}
        for which, *words in filter(None, words_of(self._proc / "pressure/memory")):
            total = next((word[6:] for word in words if word.startswith("total=")), "")
            if which in ("some", "full") and total.isdecimal():
                found[f"memory_{which}_ns"] = int(total) * 1000
        return found

    def _retransmits(self) -> dict[str, int]:
        lines = [words for words in words_of(self._proc / "net/snmp") if words[:1] == ["Tcp:"]]
        names, values = [*lines, [], []][:2]
        counters = dict(zip(names, values, strict=False))
        return {"tcp_retransmits": int(counters["RetransSegs"])} if "RetransSegs" in counters else {}
