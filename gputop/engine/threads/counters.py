"""Thread rows without eBPF: differences between two readings of the kernel's own counters.

The kernel adds run-queue time when a thread gets its CPU and on-CPU time at its timer tick or at a
switch, so a reading lags behind by up to that much. Differences are kept as they are, even where the
blocked part becomes negative for a moment: only then do sums over several readings stay exact.
``settled`` makes the sum of a window plausible.
"""

from __future__ import annotations

from dataclasses import dataclass

from gputop.engine.threads.switches import ThreadTick
from probes.source import Sample

_NUMBERS = ("pid", "tid", "born_ns", "on_cpu_ns", "run_delay_ns", "voluntary", "involuntary")
_BIRTH_SLACK_NS = 20_000_000  # births are known to a hundredth of a second


@dataclass(frozen=True, slots=True)
class Reading:
    """The kernel's counters of one thread since its birth."""

    pid: int
    born_ns: int  # CLOCK_MONOTONIC; 0 if it was born before it was watched
    state: str  # as ps shows it
    on_cpu: int
    run_delay: int
    voluntary: int
    involuntary: int

    def since(self, before: Reading, lived: int) -> ThreadTick:
        """Return the growth within ``lived`` ns."""
        runnable = self.run_delay - before.run_delay
        return ThreadTick(
            self.pid,
            lived,
            runnable,
            lived - runnable - (self.on_cpu - before.on_cpu),
            self.voluntary - before.voluntary,
            self.involuntary - before.involuntary,
        )

    def word(self, before: Reading | None) -> str:
        """Return its state as of frames; a thread in R without CPU time is runnable."""
        if self.state != "R":
            return "exited" if self.state in "ZX" else "blocked"
        return "running" if before is None or self.on_cpu > before.on_cpu else "runnable"


@dataclass(frozen=True, slots=True)
class Counters:
    """All watched threads at one instant (the ``counters`` sample)."""

    time_ns: int
    threads: dict[int, Reading]

    @classmethod
    def from_sample(cls, sample: Sample) -> Counters:
        """Read a sample; columns of different lengths (a damaged file) are cut to the shortest."""
        data = sample.data
        columns = [data[name] if isinstance(data.get(name), list) else [] for name in _NUMBERS]
        threads = {}
        for letter, *values in zip(data.get("state", ()), *columns, strict=False):
            pid, tid, born, *counted = (int(value) for value in values)
            threads[tid] = Reading(pid, born, str(letter), *counted)
        return cls(sample.time_ns, threads)

    def growth(self, before: Counters | None, *, whole: bool = False) -> dict[int, ThreadTick]:
        """Return tid -> growth since the reading before; nothing for new threads.

        Args:
            before: The reading before.
            whole: Count a new thread from its birth, not from now.
        """
        found = {}
        for tid, now in self.threads.items():
            last = before.threads.get(tid) if before is not None else None
            if last is not None and before is not None and _same(last, now):
                found[tid] = now.since(last, self.time_ns - before.time_ns)
            elif now.born_ns and (whole or (before and now.born_ns > before.time_ns - _BIRTH_SLACK_NS)):
                unborn = Reading(now.pid, now.born_ns, "", 0, 0, 0, 0)
                found[tid] = now.since(unborn, max(self.time_ns - now.born_ns, 0))
            else:
                found[tid] = ThreadTick(now.pid)
        return found

    def states(self, before: Counters | None) -> dict[int, str]:
        """Return tid -> its state as of frames."""
        known = before.threads if before is not None else {}
        return {tid: now.word(known.get(tid)) for tid, now in self.threads.items()}


def _same(before: Reading, now: Reading) -> bool:
    """True if it is the same thread: the counters of a reused number start again."""
    return before.pid == now.pid and before.voluntary <= now.voluntary and before.on_cpu <= now.on_cpu


def settled(thread: ThreadTick) -> ThreadTick:
    """Return the sum of a window with every part limited to the thread's lifetime."""
    runnable = min(max(thread.runnable, 0), thread.lived)
    blocked = min(max(thread.blocked, 0), thread.lived - runnable)
    return ThreadTick(thread.pid, thread.lived, runnable, blocked, thread.voluntary, thread.involuntary)


def add_up(sums: dict[int, ThreadTick], growth: dict[int, ThreadTick]) -> None:
    """Add a growth to ``sums``; a thread number of another process starts again."""
    for tid, thread in growth.items():
        known = sums.get(tid)
        if known is None or known.pid != thread.pid:
            sums[tid] = known = ThreadTick(thread.pid)
        known.add(thread)
