"""Whether a story recorded with ``--inside`` has the simulated GPU's idle time and rows, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import gputop
from gputop.simgpu.trace import read_trace
from probes.activities import activity_rows
from probes.samples import sample_data
from probes.source import ACTIVITY, PROBLEM
from replay.reader import SessionReader
from tests.stories.cells import count, mark, percent, row, table
from tests.stories.judge import Verdict
from tests.stories.recording import Run

WORK = {"kernel", "h2d", "d2h", "d2d", "memset", "comm", "comm_wait"}
_ON_GPU = ("kernel", "copy", "fill", "graph")
_PER_GAP = 4  # times the clocks' error: two edges, each by a reading before and after it
_REST_NS = 1_000
HEAD = """# Stories from inside: what is true, and what `--inside` makes of it

Written by `make stories ARGS="--inside --write"`: do not edit. The programs of the first part, recorded
with `--inside`. *off* is how far idle time is from the simulated GPU's trace, *bound* how far it may be by
the clocks' error; *rows* are kernels, copies and fills (a CUDA graph is one row, so their number is not
compared there), *unlinked* those without their call. Of a GPU that another program uses, too, idle time must
not be proved: its kernels are not seen.
"""


@dataclass(frozen=True, slots=True)
class Exactness:
    """How far a recording with ``--inside`` is from the trace.

    Attributes:
        off_ns: Between its idle time and the trace's, all GPUs together.
        bound_ns: By so much both may differ, by the clocks' error.
        rows, real: Of the GPU: recorded, in the trace; a graph is one row, and none of them is compared then.
        unlinked: Rows without their call.
        problem: Why nothing is exact; "" where it is.
        shared: Whether another program uses the GPU: nothing may be proved then.
    """

    off_ns: int
    bound_ns: int
    rows: int
    real: int
    unlinked: int
    problem: str
    shared: bool = False

    @property
    def holds(self) -> bool:
        """Whether all is as the issue asks."""
        if self.shared:
            return bool(self.problem)
        return (
            not self.problem and self.off_ns <= self.bound_ns and self.rows == self.real and not self.unlinked
        )

    def text(self) -> str:
        """For the table's reader."""
        if self.problem:
            return f"not exact: {self.problem}"
        word = "exact" if self.holds else "NOT EXACT"
        return (
            f"{word}: idle off by {self.off_ns} ns (bound {self.bound_ns}), {self.rows} of {self.real} rows, "
            f"{self.unlinked} without their call"
        )


def exactness(run: Run) -> Exactness:
    """Of a run."""
    truth = read_trace(run.trace)
    real = truth.of(kinds=WORK)
    report = gputop.explain(run.recording)
    kinds, unlinked, problems = _rows(run)
    if report.exact is None or report.exact.error_ns is None:
        shared = "shared" in run.story.classes
        return Exactness(0, 0, 0, len(real), 0, "; ".join(problems) or "no kernels are known", shared)
    off = gaps = 0
    for gpu in report.gpus:
        mine = real[real["device"] == int(gpu.label.rpartition(" ")[2])]
        span = int(mine["start"].min()), int(mine["end"].max())
        idle = truth.idle_intervals(None, int(mine["device"][0]), *span, work_from="start", kinds=WORK)
        gaps += len(idle)
        off += abs(gpu.idle.lower - int((idle[:, 1] - idle[:, 0]).sum()))
    rows = sum(kinds.values())
    waits = int(np.count_nonzero(real["kind"] == "comm_wait"))
    whole = rows if kinds["graph"] else len(real) - waits
    bound = _REST_NS + _PER_GAP * report.exact.error_ns * gaps
    shared = "shared" in run.story.classes
    return Exactness(off, bound, rows, whole, unlinked, "; ".join(problems), shared)


def _rows(run: Run) -> tuple[Counter[str], int, list[str]]:
    """(rows of GPUs by kind, those without their call, problems that were reported)."""
    kinds: Counter[str] = Counter()
    unlinked, problems = 0, []
    reader = SessionReader(run.recording)
    for item in reader.items():
        if (data := sample_data(item, ACTIVITY)) is not None:
            rows, texts = activity_rows(data)
            mine = rows[np.isin(rows["what"], [place for place, text in enumerate(texts) if text in _ON_GPU])]
            kinds.update(texts[one] for one in mine["what"])
            unlinked += int(np.count_nonzero(mine["call_tid"] < 0))
        elif (problem := sample_data(item, PROBLEM)) is not None and "--inside" in problem["text"]:
            problems.append(problem["text"])
    reader.close()
    return kinds, unlinked, problems


def section(judged: Sequence[tuple[Verdict, Exactness]], failures: Sequence[str]) -> str:
    """The part of the page."""
    held = [
        ("idle time, rows and calls exact", [found.holds for _, found in judged]),
        ("class right", [one.class_right for one, _ in judged]),
        ("first cause right", [one.cause_right for one, _ in judged if one.run.story.causes]),
        ("line right", [one.line_right for one, _ in judged]),
        (
            "nothing blamed where nothing is to blame",
            [one.cause_right for one, _ in judged if not one.run.story.causes],
        ),
    ]
    heads = (
        "story", "true idle %", "proved %", "off ns", "bound ns", "rows", "unlinked", "class", "first cause",
        "line",
    )  # fmt: skip
    rows = [
        row(
            (
                one.run.story.name,
                percent(one.truth.idle),
                percent(one.answer.proved),
                "-" if found.shared and found.holds else f"{found.off_ns}{mark(found.holds)}",
                *(
                    ("-", "-", "-")
                    if found.shared
                    else (str(found.bound_ns), f"{found.rows} of {found.real}", str(found.unlinked))
                ),
                (one.answer.bound_by or "-") + mark(one.class_right),
                (one.answer.first or "nothing") + mark(one.cause_right),
                {None: "", True: "right", False: "✗"}[one.line_right],
            )
        )
        for one, found in judged
    ]
    summary = table(("requirement", "holds in"), [row((what, count(those))) for what, those in held])
    failed = [f"- {one}" for one in failures]
    return "\n".join([HEAD, *summary, *table(heads, rows), *failed])
