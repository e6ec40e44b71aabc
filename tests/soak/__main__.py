"""Runs the live path over hours of the machine's time, and prints what it took as JSON: samples as they come
on standard error, all of it at the end.

``python -m tests.soak HOURS``: the reader, the engine, the history, the live explanation, lines of Python and
the frames as they are; only the kernel, NVML, the clock and the terminal are made (tests/soak/machine.py).
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gputop.analysis import live as explain_live
from gputop.analysis.window import Verdict
from gputop.engine import facts
from gputop.engine.calls import stack_table
from gputop.playback.feeds import LiveFeed
from gputop.playback.recorder import Recorder
from probes import known, thread_names
from probes.code.interpreter import Interpreter
from probes.code.layout import LAYOUTS
from probes.ebpf.bpf_ring import Ring
from probes.observe import live_source
from probes.observe.scope import Scope
from probes.proc import roster
from probes.source import Item
from probes.stacks.line_tracker import Lines
from probes.stacks.stackring import Inbox
from replay import state_snapshot
from replay.past.history import History
from tests.screen_support import Shown
from tests.soak.machine import RING_BYTES, SECOND, Machine

SAMPLES = 100  # over the whole time
_WAITING = 300  # items that the explanation has not taken in: then the clock waits for it
_SHOWN_NS = 5 * SECOND  # between two looks at the screen
_CAUGHT_UP_NS = 60 * SECOND  # so often the clock waits until all is taken in: else nothing new is explained
_LEAST_S = 0.001  # a clock whose steps are smaller stands still
_FEW = (
    (known, "MOST_ROWS", 2048),
    (roster, "MOST_NAMES", 2048),
    (thread_names, "MOST_NAMES", 2048),
    (facts, "MOST_ENDED", 256),
    (state_snapshot, "MOST_ENDED", 256),
    (state_snapshot, "MOST_STACKS", 4096),
    (stack_table, "MOST_STACKS", 4096),
    (stack_table, "MANY_STACKS", 2048),
)
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Source(live_source.LiveSource):
    """The live source over the machine; ``items`` is gputop's own."""

    def __init__(self, machine: Machine, stop: Stop) -> None:
        super().__init__(live_source.LivePlan(pids=(machine.pid,), lines="slow"))
        nothing = SimpleNamespace(close=lambda: None)
        self._stop = stop  # type: ignore[assignment]
        self._ring = Ring(machine.ring.descriptor, RING_BYTES)
        self._threads = SimpleNamespace(read=machine.threads)  # type: ignore[assignment]
        self._cpus = SimpleNamespace(read=machine.cpus)  # type: ignore[assignment]
        self._attachments = nothing  # type: ignore[assignment]
        self._scope = Scope(self._attachments, sessions=False)
        self._sampler = SimpleNamespace(  # type: ignore[assignment]
            latest=machine.gpus, wait_first=lambda _: None, close=lambda: None, driver="1.2.3"
        )
        self._lines = _lines(machine, self._pending.append)
        self._roster.add(machine.pid)
        clock = {"monotonic_ns": self._started_ns, "realtime_ns": machine.clock.time_ns(), "utc_offset_s": 0}
        self._header = {
            "start_ns": self._started_ns,
            "rate_hz": 4.0,
            "clock": clock,
            "own_pid": 1,
            "pids": [machine.pid],
            "driver": "1.2.3",
            "lines": "slow",
        }


class _Lines(Lines):
    """Without a kernel that counts what processes map."""

    def _state(self, pid: int) -> None:
        return None


def _lines(machine: Machine, tell: Any) -> Lines:
    made = _Lines(SimpleNamespace(), SimpleNamespace(), lambda _pid: True, tell, ())  # type: ignore[arg-type]
    made.inbox = Inbox(machine.stacks, made.aside)  # type: ignore[arg-type]
    made.programs = SimpleNamespace(maps={"seen": -1})  # type: ignore[assignment]
    made.rows.append(Interpreter("python", (3, 12), layout=LAYOUTS[12]))
    return made


class Stop(threading.Event):
    """What the reader waits on: meanwhile the machine's time goes by, and the screen is looked at."""

    def __init__(self, machine: Machine, hours: float) -> None:
        super().__init__()
        self.feed: LiveFeed | None = None
        self.explained = 0
        self.marks = self.marks_taken = 0  # that the explanation was given, and has taken in
        self.samples: list[dict[str, float]] = []
        self._machine = machine
        self._begun_ns, self._begun_s = machine.clock.now_ns, time.monotonic()
        self._length_ns = int(hours * 3600 * SECOND)
        self._screen = Shown(size=(160, 50))
        self._caught_up_ns = self._shown_ns = self.frames = 0

    def wait(self, timeout: float | None = None) -> bool:
        """Lets so much time go by at once; True when all of it is over."""
        assert self.feed is not None
        explainer = self.feed.explainer
        while len(explainer.waiting_items) > _WAITING and not explainer.failure:
            time.sleep(0.001)
        if self._machine.clock.now_ns >= self._caught_up_ns + _CAUGHT_UP_NS:
            self._caught_up_ns = self._machine.clock.now_ns
            while self.marks_taken < self.marks and not explainer.failure:
                time.sleep(0.001)
        self._machine.advance(max(timeout or 0, _LEAST_S))
        now = self._machine.clock.now_ns
        if now >= self._shown_ns + _SHOWN_NS:
            self._shown_ns = now
            self._look()
        gone = now - self._begun_ns
        if gone >= self._length_ns * (len(self.samples) + 1) // SAMPLES:
            sample = {
                "hours": gone / SECOND / 3600,
                "real_s": time.monotonic() - self._begun_s,
                "explained": self.explained,
                **_use(self.feed),
            }
            print(json.dumps(sample), file=sys.stderr, flush=True)  # for who cannot wait for the end
            self.samples.append(sample)
        if gone >= self._length_ns or explainer.failure:
            self.set()
        return self.is_set()

    def _look(self) -> None:
        assert self.feed is not None
        frame = self.feed.latest()
        if frame is not None:
            self.frames += 1
            self._screen.explain(self.feed.explained())
            self._screen.show(frame)


def _use(feed: LiveFeed) -> dict[str, float]:
    """What this process holds, and the CPU seconds that its threads have taken."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free is not held
    return {
        "memory": int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "threads": len(os.listdir("/proc/self/task")),
        "taking_in_s": _cpu_s(feed.explainer.thread),
        "explaining_s": _cpu_s(feed.explainer.explaining_thread),
        "reader_s": _cpu_s(feed.thread),
    }


def _cpu_s(thread: threading.Thread) -> float:
    """CPU seconds that a thread has taken."""
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _TICKS


def _small_tables() -> None:
    """What keeps so many is full in the first tenth, so that growth behind it is of another kind."""
    for module, name, few in _FEW:
        assert hasattr(module, name)
        setattr(module, name, few)


def main(hours: float) -> None:
    """Runs it and prints the outcome."""
    machine = Machine()
    _small_tables()
    live_source.time = explain_live.time = machine.clock  # type: ignore[assignment, attr-defined]
    stop = Stop(machine, hours)
    source = Source(machine, stop)
    history = History(source.header, clock=machine.clock.monotonic_ns)
    feed = stop.feed = LiveFeed(source, recorder=Recorder(history))
    explainer = feed.explainer
    tell, take, at_mark = explainer.on_verdict, explainer.feed, explainer.at_mark

    def told(verdict: Verdict) -> None:
        stop.explained += 1
        tell(verdict)

    def given(item: Item) -> None:
        stop.marks += explain_live.is_mark(item)
        take(item)

    def taken() -> None:
        at_mark()
        stop.marks_taken += 1

    explainer.on_verdict, explainer.feed, explainer.at_mark = told, given, taken  # type: ignore[method-assign]
    begun = time.monotonic()
    feed.start()
    feed.thread.join()
    failure, frame = feed.failure() or explainer.failure, feed.latest()
    feed.close()
    report = explainer.window.verdict().report  # of all that it has taken in, whenever the last one was made
    outcome = {
        "samples": stop.samples,
        "forked": machine.forked,
        "records": machine.written,
        "frames": stop.frames,
        "lost": frame.lost.events if frame else -1,
        "failure": failure,
        "verdict": report.verdict,
        "real_s": time.monotonic() - begun,
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(float(sys.argv[1]))
