"""What a traced call costs, against an empty pair of entry and return probes.

Rounds of untraced, empty pair, gputop's probes, in turn, on the same running program: what disturbs the
machine for longer than a moment disturbs all three, and the fastest of many short batches is free of what
disturbs it for a moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from probes import schema
from probes.code import libraries
from probes.code.layout import FIRST_STACK
from probes.ebpf import attacher, bpfcall, loader
from probes.ebpf.bpf_ring import Ring
from probes.schema import NOT_REQUESTED
from probes.stacks import programs
from probes.stacks.line_tracker import Lines
from tests.bench.rows import Row
from tests.bench.workload import COUNTED, LIGHT, Apart, Driver, build
from tests.opened_files import probes_of

LIGHT_BOUND, COUNTED_BOUND = 1.40, 1.65
ROUNDS = 9
BATCHES, CALLS = 600, 100  # 25 ms a function and condition, batches of 40 µs
RING_BYTES = 16 << 20

_EMPTY = """
#include <linux/types.h>
#include <uapi/linux/ptrace.h>
int on_entry(struct pt_regs *ctx) { return 0; }
int on_return(struct pt_regs *ctx) { return 0; }
"""

Costs = dict[str, float]  # function -> ns per call


class Empty:
    """A pair of programs that do nothing."""

    def __init__(self, *of: libraries.Target) -> None:
        _, programs, _, _ = loader.load_text(_EMPTY, loader.CALLS, {}, (), multi=True)
        self._programs = [programs[name] for name in loader.CALLS]
        probed = [(str(library.path), probes_of(library)) for library in of]
        self._places = [
            (path, [one.offset for one in probes], [one.cookie for one in probes]) for path, probes in probed
        ]

    @contextmanager
    def attached(self, *, entry_only: bool = False) -> Iterator[None]:
        kinds = (False,) if entry_only else (False, True)
        links = [
            bpfcall.attach_uprobes(program, path, offsets, cookies, on_return=on_return)
            for path, offsets, cookies in self._places
            for program, on_return in zip(self._programs, kinds, strict=False)
        ]
        try:
            yield
        finally:
            for link in links:
                os.close(link)


class Gputop:
    """gputop's programs with a reader that looks after the ring as the live source does."""

    def __init__(self, library: libraries.Target, pid: int, lines: str = "slow") -> None:
        self._libraries = [library]
        self._pid = pid
        self._programs = loader.load(loader.Options(False, RING_BYTES, os.getpid(), lines))
        self._cpus = bpfcall.BatchReader(self._programs.maps["cpus"], 4, schema.CPU_STATE_DTYPE)
        self.ring = Ring(self._programs.maps["events"], RING_BYTES)
        self._lines: programs.LinePrograms | None = None
        self.calls = 0
        self.without_line = 0
        self._programs.admit(pid)

    def also(self, library: libraries.Target) -> None:
        """Probes another library as well."""
        self._libraries.append(library)

    @contextmanager
    def attached(self, own: int = 0) -> Iterator[None]:
        """Probes everybody's calls, or with ``own`` those of that process."""
        links = attacher.Attachments(self._programs)
        try:
            links.narrow((own,) if own else ())
            links.attach_scheduler()
            if not links.attach(self._libraries):
                raise RuntimeError(" ".join(links.refusals))
            yield
        finally:
            links.close()

    @contextmanager
    def knowing(self, pythons: list[Path]) -> Iterator[None]:
        """As ``attached``, with the interpreter of the process known."""
        links = attacher.Attachments(self._programs)
        lines = Lines(links, self._programs, lambda pid: True, lambda sample: None, pythons)
        try:
            links.attach_scheduler()
            links.attach(self._libraries)
            self._lines = self._lines or programs.load(self._programs)
            lines.load(self._lines)
            lines.turn(lambda: [self._pid])
            yield
        finally:
            links.close()
            lines.close()

    def drain(self) -> None:
        while len(records := self.ring.read()):
            calls = records["kind"] == schema.Kind.CALL
            self.calls += int(calls.sum())
            asked = calls & (records["stack"] != NOT_REQUESTED)
            self.without_line += int((asked & (records["stack"] < FIRST_STACK)).sum())

    def close(self) -> int:
        """Returns how many records were lost."""
        self.ring.close()
        return int(self._cpus.read()["lost"].sum())


def _measure(driver: Driver, gputop: Gputop | None = None) -> Costs:
    costs = {}
    for name, number in (LIGHT | COUNTED).items():
        driver.order(number, BATCHES, CALLS)
        costs[name] = driver.answer(gputop.drain if gputop else lambda: None).fastest_ns
    return costs


def _rounds(driver: Driver, library: libraries.Target) -> list[tuple[Costs, Costs, Costs]]:
    empty, gputop = Empty(library), Gputop(library, driver.pid)
    found = []
    for _ in range(ROUNDS):
        bare = _measure(driver)
        with empty.attached():
            pair = _measure(driver)
        with gputop.attached():
            traced = _measure(driver, gputop)
        found.append((bare, pair, traced))
    lost = gputop.close()
    made = ROUNDS * BATCHES * CALLS * len(LIGHT | COUNTED)
    if lost or gputop.calls != made:
        raise RuntimeError(f"{gputop.calls} calls seen and {lost} records lost, of {made} calls made")
    return found


def rows(folder: Path) -> list[Row]:
    """The rows of both groups of calls: the worst function of each."""
    path, program = build(folder)
    library = libraries.target(path)
    assert library is not None
    with Apart() as place, Driver(program, place.cpu) as driver:
        found = _rounds(driver, library)
    return [
        _row("launch, query, record call / empty pair", LIGHT, LIGHT_BOUND, found),
        _row("sync, copy, allocation call / empty pair", COUNTED, COUNTED_BOUND, found),
    ]


def _row(title: str, names: dict[str, int], bound: float, found: list[tuple[Costs, Costs, Costs]]) -> Row:
    ratios, texts = [], []
    for name in names:
        ratios.append(
            median((traced[name] - bare[name]) / (pair[name] - bare[name]) for bare, pair, traced in found)
        )
        bare, pair, traced = (min(part[name] for part in parts) for parts in zip(*found, strict=True))
        texts.append(
            f"{name.removeprefix('cuda')} {ratios[-1]:.2f} ({bare:.0f}, {pair:.0f}, {traced:.0f} ns)"
        )
    return Row(title, max(ratios), "", bound, "; ".join(texts))
