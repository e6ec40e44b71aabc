"""One trace: what gputop says of it against what its rows say."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gputop
from gputop.analysis.answer.report import Report
from tests.reality.raw import read
from tests.reality.truth import GpuTruth, truth
from tests.typed import typed

IDLE, BUSY = 0.1, 0.9  # beyond these a class is asked for
LEADS = 0.3  # of a GPU's time in question: what takes so much may be named
SMALL = 0.002  # by which shares of idle time may differ: ranges are cut to ns, times of doubles to 250 ns

# the classes that may be named for each thing that the rows say of idle time
_CLASSES: Mapping[str, frozenset[str]] = {
    "input": frozenset({"input"}),
    "waits": frozenset({"sync", "copy"}),
    "after a wait": frozenset({"sync", "copy", "host"}),
    "memory calls": frozenset({"sync", "startup"}),
    "code and graphs": frozenset({"launch", "startup"}),
    "between launches": frozenset({"launch"}),
    "host work": frozenset({"host", "startup", "input"}),
    "launched already": frozenset({"queue", "launch", "communication"}),
    "no launch in the file": frozenset({"None"}),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A row of the table.

    Attributes:
        idle: Of each GPU (number, share by the rows, share by gputop).
        wanted: Whether a class is asked for.
        allowed: Classes that the rows allow.
        named: The class that gputop names.
    """

    name: str
    idle: tuple[tuple[int, float, float | None], ...]
    wanted: bool
    allowed: frozenset[str]
    named: str
    first: str
    where: str
    rows: str
    verdict: str

    @property
    def exact(self) -> bool:
        """Whether all GPUs are there, each with its idle time."""
        return all(told is not None and abs(told - share) <= SMALL for _gpu, share, told in self.idle)

    @property
    def right(self) -> bool:
        """Whether the class is one that the rows show."""
        return self.named in self.allowed


def judged(path: Path, folder: Path) -> Judged | None:
    """The row of one file; None where it holds no GPU's work."""
    return judged_by(explained(path, folder), path) if truth(read(path)) else None


def judged_by(report: Report | None, path: Path) -> Judged:
    """The row of a file that has such a report."""
    found = truth(read(path))
    told = {gpu.label: gpu for gpu in report.gpus} if report is not None else {}
    idle = []
    for one in found:
        gpu = told.get(f"GPU {one.gpu}")
        share = None if gpu is None or not gpu.span_ns else gpu.idle.lower / gpu.span_ns
        idle.append((one.gpu, one.idle, share if gpu is None or gpu.span_ns else 0.0))
    span = sum(one.span_ns for one in found)
    share = sum(one.idle_ns for one in found) / max(span, 1)
    kind = report.diagnosis.kind if report is not None and report.diagnosis is not None else None
    first = report.findings[0] if report is not None and report.findings else None
    return Judged(
        path.name,
        tuple(idle),
        wanted=share > IDLE or share < 1 - BUSY,
        allowed=allowed(found),
        named=str(kind),
        first=first.cause if first else "",
        where=first.line.text() if first and first.line else "",
        rows=_rows(found, share),
        verdict=report.verdict if report is not None else "",
    )


def explained(path: Path, folder: Path) -> Report | None:
    """What gputop says; None where it cannot import the file."""
    session = folder / f"{path.name}.msgpack"
    session.unlink(missing_ok=True)
    with contextlib.redirect_stderr(io.StringIO()):
        if typed("import", str(path), "-o", str(session)) != 0:
            return None
        return gputop.explain(session)


def allowed(found: list[GpuTruth]) -> frozenset[str]:
    """The classes that may be named: of what takes most of the idle time, and of the work."""
    span, idle = sum(one.span_ns for one in found), sum(one.idle_ns for one in found)
    why = _sum(found, "why")
    classes: set[str] = set()
    most = max(why.values(), default=0)
    for name, ns in why.items():
        if ns >= LEADS * idle or ns == most:
            classes |= _CLASSES[name]
    if idle < 0.4 * span:  # then what it is busy with may be reported as well
        runs = _sum(found, "runs")
        if idle < IDLE * span:
            classes = set()
        whole = sum(runs.values())
        if runs.get("kernels", 0) >= LEADS * whole:
            classes |= {"compute", "memory"}
        for name, kind in (("communication", "communication"), ("copies", "copy")):
            if runs.get(name, 0) >= LEADS * whole:
                classes.add(kind)
    return frozenset(classes)


def _sum(found: list[GpuTruth], name: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in found:
        for key, ns in getattr(one, name).items():
            total[key] = total.get(key, 0) + ns
    return total


def _rows(found: list[GpuTruth], share: float) -> str:
    """What the rows say, in words: of the idle time, or of the work where there is little of it."""
    parts = _sum(found, "why" if share > IDLE else "runs")
    whole = max(sum(parts.values()), 1)
    most = sorted(parts.items(), key=lambda one: -one[1])[:3]
    return ", ".join(f"{name} {100 * ns / whole:.0f} %" for name, ns in most if ns > 0.05 * whole)
