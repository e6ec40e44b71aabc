"""Triggers of kept sessions: a slow step, a new finding, an abnormal exit."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from gputop.analysis.answer.picture import OneStep
from gputop.analysis.answer.report import Level
from gputop.analysis.window import Verdict
from gputop.engine.calls.cuda_errors import failed
from gputop.format import format_ns
from probes import api
from probes.samples import process_data
from probes.schema import Kind, Records, select
from probes.source import MARK, Item, Sample

SLOW = 2.0  # times the median
# and times the second longest before: regular long steps, as those that save a model, are not slow
UNLIKE_BEFORE = 1.5
FEWEST_STEPS = 32  # before a step can be slow
MOST_STEPS = 256  # kept of each process
MOST_PACES = 1024  # processes with steps: one that has ended may be reported once more
LEAST_SHARE = 0.1  # of the GPU's time that a finding costs, to be worth a file
AGAIN_NS = 900_000_000_000  # a finding that was absent for this long is new again
ERROR_NS = 30_000_000_000  # a CUDA error at most this long before an exit counts as its reason
_INTENDED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE})  # no accident
_NO_MEMORY = 2  # cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY

SLOW_STEP, FINDING, ENDED, REQUESTED = "slow-step", "finding", "ended", "requested"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A moment worth keeping."""

    kind: str  # one of SLOW_STEP, FINDING, ENDED, REQUESTED
    pid: int  # the process; 0: the machine
    time_ns: int  # CLOCK_MONOTONIC
    text: str  # the event, for the marker in the recording


class StepTimes:
    """The steps of one process, each consumed once although explanations overlap."""

    def __init__(self) -> None:
        self._lengths: deque[int] = deque(maxlen=MOST_STEPS)
        self._until = 0

    def consume(self, step: OneStep) -> Iterator[tuple[int, int, int | None]]:
        """Yield (end, length, usual length in ns if the step is slow) of each new step."""
        fresh = step.spans[step.spans[:, 0] >= self._until]
        for begin, until in fresh.tolist():
            length, slow = until - begin, None
            if len(self._lengths) >= FEWEST_STEPS:
                usual = int(np.median(self._lengths))
                second = sorted(self._lengths)[-2]
                if length >= SLOW * usual and length > UNLIKE_BEFORE * second:
                    slow = usual
            self._lengths.append(length)
            self._until = until
            yield until, length, slow


class Triggers:
    """Finds triggers: ``consume`` in the observing thread, ``consume_verdict`` in the explaining one."""

    def __init__(
        self,
        report: Callable[[Trigger], None],
        step: Callable[[int, int], None] = lambda pid, ns: None,
        killed_for_memory: Callable[[], int] | None = None,
    ) -> None:
        """Start with an empty history.

        Args:
            report: Called with each trigger, from both threads.
            step: Called with (process, ns) of each step.
            killed_for_memory: Counts the kernel's out-of-memory kills; called when a process was killed.
        """
        self._report, self._step = report, step
        self._paces: dict[int, StepTimes] = {}
        self._reported: dict[tuple[int, str], int] = {}
        self._errors: dict[int, tuple[int, str, int]] = {}  # process -> when, function, code
        self._ended: list[tuple[int, int, int]] = []  # process, exit code, when: within this tick
        self._killed = killed_for_memory or killed_by_kernel
        self._killed_before = self._killed()

    # -- verdicts -----------------------------------------------------------------------------------

    def consume_verdict(self, verdict: Verdict) -> None:
        """Check the newest ten seconds."""
        for step in verdict.steps:
            pace = self._paces.setdefault(step.pid, StepTimes())
            for until, length, usual in pace.consume(step):
                self._step(step.pid, length)
                if usual is not None:
                    text = (
                        f"a step of process {step.pid} took {format_ns(length)}, usually {format_ns(usual)}"
                    )
                    self._report(Trigger(SLOW_STEP, step.pid, until, text))
        while len(self._paces) > MOST_PACES:
            self._paces.pop(next(iter(self._paces)), None)
        for finding in verdict.report.findings:
            large = finding.loss.lower >= LEAST_SHARE * max(verdict.report.span_ns, 1)
            if finding.level == Level.HINT or finding.kind != "idle" or not large:
                continue
            key = finding.pid, finding.cause
            if verdict.end_ns - self._reported.get(key, -AGAIN_NS) >= AGAIN_NS:
                text = f"{finding.cause} {finding.title}: process {finding.pid}"
                self._report(Trigger(FINDING, finding.pid, verdict.end_ns, text))
            self._reported[key] = verdict.end_ns
        self._reported = {key: at for key, at in self._reported.items() if verdict.end_ns - at < AGAIN_NS}

    # -- items --------------------------------------------------------------------------------------

    def consume(self, item: Item) -> None:
        """Check for errors and abnormal exits."""
        if not isinstance(item, Sample):
            self._note_errors(item)
        elif item.kind == MARK:
            ended, self._ended = self._ended, []
            for pid, code, at_ns in ended:
                text = self._bad_end(code, at_ns, self._errors.pop(pid, None))
                if text:
                    self._report(Trigger(ENDED, pid, at_ns, f"process {pid} {text}"))
        elif (data := process_data(item)) is not None and data.get("exited_ns") is not None:
            self._paces.pop(data["pid"], None)
            if data.get("called"):  # its last calls come after its exit, within the tick
                self._ended.append((data["pid"], int(data.get("exit_code", 0)), item.time_ns))
            else:
                self._errors.pop(data["pid"], None)

    def _note_errors(self, records: Records) -> None:
        errors = (records["kind"] == np.uint8(Kind.CALL)) & failed(records["ret"])
        if errors.any():
            for row in select(records, errors):
                op = min(int(row["op"]), len(api.BY_OP) - 1)
                self._errors[int(row["pid"])] = int(row["t_end"]), api.BY_OP[op].name, int(row["ret"])

    def _bad_end(self, code: int, now_ns: int, error: tuple[int, str, int] | None) -> str:
        """Return the fault of an exit; "" for a normal one."""
        number, status = code & 0x7F, code >> 8 & 0xFF
        if number and number not in _INTENDED:
            name = str(number)
            with suppress(ValueError):
                name = signal.Signals(number).name
            if number == signal.SIGKILL:
                before, self._killed_before = self._killed_before, self._killed()
                if self._killed_before > before:
                    return "was ended by the kernel for lack of memory"
            return f"was ended by {name}"
        if not number and status and error is not None and now_ns - error[0] <= ERROR_NS:
            _, function, result = error
            what = f"{function} had failed (error {result}{', no memory' if result == _NO_MEMORY else ''})"
            return f"ended with status {status} after {what}"
        return ""


def killed_by_kernel() -> int:
    """Return the kernel's number of out-of-memory kills since boot; 0 where it is not available."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except (OSError, ValueError, IndexError):
        return 0
