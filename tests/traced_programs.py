"""Programs as a profiler's file has them: calls, and beside them kernels and ranges, all times known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gputop.analysis.evidence.api_classes import COPY, FILL, KERNEL, OPERATOR, OVERHEAD, PYTHON, RANGE
from probes.activities import activity_samples, unknown_rows
from probes.source import Sample
from tests import items
from tests.items import START
from tests.programs import LAUNCH, MAIN, US, Program

__all__ = ["COPY", "FILL", "KERNEL", "OPERATOR", "OVERHEAD", "PYTHON", "RANGE", "Traced"]


@dataclass
class Traced:
    """Such a program; times are microseconds from its start."""

    source: str = "kineto"
    rows: list[dict[str, object]] = field(default_factory=list)
    program: Program = field(default_factory=Program)  # no switches: of no thread it is known whether it ran

    def call(self, op: str, begin: int, end: int, **more: int) -> None:
        """A call that gives the GPU nothing."""
        self.program.call(op, begin, end, **more)

    def gives(
        self, begin: int, end: int, ran: tuple[int, int], what: str = KERNEL, name: str = "gemm", **more: int
    ) -> None:
        """A call and what it gave the GPU; ``ran`` is when that ran."""
        device, stream = more.pop("device", 0), more.pop("on", 7)
        tid = more.get("tid", MAIN)
        op = LAUNCH if what == KERNEL else "cudaMemcpyAsync" if what == COPY else "cudaMemsetAsync"
        self.program.call(op, begin, end, aux=0, **more)
        self.ran(ran, what, name, device=device, stream=stream, call_begin=START + begin * US, call_tid=tid)

    def ran(self, ran: tuple[int, int], what: str = KERNEL, name: str = "gemm", **more: int) -> None:
        """Work of a GPU; without ``call_tid`` of a launch that is not in the file."""
        self.add(what, name, *ran, **{"device": 0, "stream": 7, **more})

    def within(self, what: str, name: str, begin: int, end: int, tid: int = MAIN) -> None:
        """An operator, a range or a function of Python."""
        self.add(what, name, begin, end, tid=tid)

    def add(self, what: str, name: str, begin: int, end: int, **more: int) -> None:
        """Any row."""
        times = {"begin": START + begin * US, "end": START + end * US}
        self.rows.append({"what": what, "name": name, "pid": MAIN, **times, **more})

    def made(self) -> Program:
        """The program with its rows."""
        made = Program(list(self.program.records), list(self.program.samples))
        made.length_us = max((int(str(row["end"])) - START) // US for row in self.rows)
        made.header |= {"source": self.source, "states": False}
        made.samples += [items.process(MAIN), items.names(START, {MAIN: "python"}), *self._samples()]
        return made

    def _samples(self) -> list[Sample]:
        texts = list(dict.fromkeys(["", *(str(row[key]) for row in self.rows for key in ("what", "name"))]))
        table = unknown_rows(len(self.rows))
        for place, row in enumerate(self.rows):
            for name, value in row.items():
                table[name][place] = texts.index(str(value)) if name in ("what", "name") else value
        table = table[np.argsort(table["end"], kind="stable")]
        return list(activity_samples(table, texts, START))
