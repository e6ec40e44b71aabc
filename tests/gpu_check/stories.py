"""The stories: ten programs before and after their fix, what gputop says of them and what is true."""

from __future__ import annotations

import ast
import re
import time
from dataclasses import dataclass, field
from typing import Any

from tests.gpu_check.machine import PROGRAMS, TIMEOUT_S, Machine, Program
from tests.gpu_check.truth import Profile, busy_ns, simulated_idle

RECORD_S, LIVE_S, PROFILE_NS = 6.0, 4.0, 1.5e9
ROUNDING = 0.02  # of the span: a second run is not the same run
NEAR = 0.05
SAME = 0.05
TENTH = 0.1  # of a step: a class of causes is the answer from there on


@dataclass(frozen=True)
class Story:
    """A program and the right answer.

    Attributes:
        classes: Any is right of the program before its fix.
        causes: Any may come first; without one nothing may be blamed.
        function: Where the chain or its first line has to be; "" for none.
        fixed: There is a program after the fix.
        beside: A second program on the same GPU.
    """

    name: str
    file: str
    classes: tuple[str, ...]
    causes: tuple[str, ...] = ()
    fixed: bool = True
    beside: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def lines(self) -> set[int]:
        """The lines that are marked with its name."""
        rows = (PROGRAMS / self.file).read_text().splitlines()
        return {row for row, text in enumerate(rows, 1) if text.endswith(f"# <- {self.name}")}

    @property
    def functions(self) -> set[str]:
        """The functions around those lines; lambdas belong to the one around them."""
        tree = ast.parse((PROGRAMS / self.file).read_text())
        around = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        return {
            max(
                (node for node in around if node.lineno <= line <= (node.end_lineno or 0)),
                key=lambda one: one.lineno,
            ).name
            for line in self.lines
        }

    def words(self, side: str) -> tuple[str, ...]:
        """The program's arguments."""
        return (*(self.arguments or (self.name,)), side) if self.file == "training.py" else (side,)


STORIES = (
    Story("loader", "training.py", ("input",), ("C08", "C12")),
    Story("numpy-sync", "training.py", ("sync", "host"), ("C02", "C28")),
    Story("device-copies", "training.py", ("copy",), ("C04", "C05", "C27")),
    Story("launches", "training.py", ("launch",), ("C06",)),
    Story("compute", "training.py", ("compute",), fixed=False),
    Story("memory", "training.py", ("memory", "compute"), fixed=False),
    Story("allocator", "training.py", ("sync", "launch"), ("C20",)),
    Story("checkpoint", "training.py", ("host", "sync"), ("C18", "C28", "C02")),
    Story("server", "served.py", ("host",), ("C29",)),
    Story("shared", "training.py", ("shared",), ("C25",), beside="compute", arguments=("memory",)),
)


@dataclass(frozen=True)
class Side:
    """One run: what is true of it and what was said. Shares are of the span; None where it is not known."""

    unit_ns: float
    units: int
    idle: float | None
    said: dict[str, Any]
    live: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """What the results keep."""
        return {
            "unit_ns": self.unit_ns,
            "units": self.units,
            "idle": self.idle,
            "said": self.said,
            "live": self.live,
        }


def _short(report: dict[str, Any]) -> dict[str, Any]:
    """What the table needs of an explanation."""
    span = report["span_ns"] or 1
    idle = report["gpu_idle_ns"]
    shares = {key: idle[key] / span for key in ("lower", "estimate", "upper") if idle.get(key) is not None}
    first = next(iter(report["findings"]), {})
    lines = [first.get("line"), *(link["line"] for link in first.get("chain", ()))]
    return {
        "idle": shares,
        "class": report["class"],
        "verdict": report["verdict"],
        "cause": first.get("cause", ""),
        "level": first.get("level", ""),
        "lines": [
            [line["file"].rpartition("/")[2], line["line"], line["function"]] for line in lines if line
        ],
        "max_gain_ns": first.get("max_gain_ns"),
    }


def measured(machine: Machine, story: Story, side: str, seconds: float) -> Side:
    """Runs one side: recorded, live, and under torch.profiler.

    Raises:
        PartError: The program or gputop failed.
    """
    beside = None
    if story.beside and side == "before":
        beside = Program(machine, "training.py", story.beside, "before")
    try:
        if beside is not None:
            beside.begin()
            beside.ask("run", 600)
        program = Program(machine, story.file, *story.words(side))
        try:
            return _phases(machine, story, side, seconds, program)
        finally:
            program.close()
    finally:
        if beside is not None:
            beside.close()


def _phases(machine: Machine, story: Story, side: str, seconds: float, program: Program) -> Side:
    recording = machine.folder / f"{story.name}-{side}.msgpack"
    with machine.recorded(recording, program.pid) as began:
        program.begin()
        program.ask("run", seconds)
        clock = program.answer()
    unit_ns = (clock["ended"] - clock["began"]) / max(clock["units"], 1)
    live: dict[str, Any] = {}
    if side == "before":
        lasts = seconds * LIVE_S / RECORD_S
        over = machine.folder / "over"
        program.ask("run", TIMEOUT_S, over)
        words = ("explain", "--pid", str(program.pid), "--duration", f"{lasts}")
        live = _short(machine.json(*words, ok=(0, 3)))
        over.touch()
        program.answer()
        over.unlink()
    loop_s = max((clock["began"] - began) / 1e9, 0.0)
    report = machine.json("explain", str(recording), "--from", f"{loop_s:.3f}", ok=(0, 3))
    idle = None
    if machine.simulated:
        idle = simulated_idle(machine.trace, program.pid, clock["began"], clock["ended"])
    elif not (story.beside and side == "before"):
        trace = machine.folder / "profile.json"
        program.ask("profile", max(int(PROFILE_NS // unit_ns), 2), trace)
        steps = program.answer()["units"]
        profile = Profile.read(trace)
        idle = max(1 - busy_ns(profile.work) / steps / unit_ns, 0.0) if len(profile.work) else None
    return Side(unit_ns, clock["units"], idle, _short(report), live)


def judged(
    story: Story, before: dict[str, Any], after: dict[str, Any] | None, ratio: float | None
) -> dict[str, Any]:
    """What is right: True, False, or None where it cannot be reported."""
    said, live = before["said"], before["live"]
    blamed = ("", *story.causes) if not story.causes else story.causes
    classes = story.classes
    if after is not None and not story.beside and after["unit_ns"] > (1 - TENTH) * before["unit_ns"]:
        # what the fix wins on this machine is too little to be the answer: then nothing need be blamed
        blamed, classes = ("", *blamed), (*classes, "compute", "memory")
    row: dict[str, Any] = {
        "proved": _below(said, before["idle"]),
        "idle": _near(said, before["idle"]),
        "class": said["class"] in classes,
        "cause": said["cause"] in blamed,
        "line": _line(story, said) if said["cause"] or "" not in blamed else None,
        "live": live["class"] in classes and live["cause"] in blamed if live else None,
    }
    if after is not None and not story.beside:
        saved = (before["unit_ns"] - after["unit_ns"]) * before["units"]
        true = after["unit_ns"] / before["unit_ns"]
        gain = said["max_gain_ns"]
        row["gain"] = None if saved <= 0 or gain is None else saved <= gain <= 1.5 * saved
        row["fixed"] = after["said"]["cause"] != said["cause"] if said["cause"] else None
        row["diff"] = None if ratio is None else abs(ratio / true - 1) <= 0.10
        row["direction"] = None if ratio is None or abs(true - 1) <= SAME else (ratio < 1) == (true < 1)
        row["proved after"] = _below(after["said"], after["idle"])
        row["idle after"] = _near(after["said"], after["idle"])
    return row


def _below(said: dict[str, Any], idle: float | None) -> bool | None:
    lower = said["idle"].get("lower")
    return None if idle is None or lower is None else bool(lower <= idle + ROUNDING)


def _near(said: dict[str, Any], idle: float | None) -> bool | None:
    estimate = said["idle"].get("estimate")
    return None if idle is None else estimate is not None and abs(estimate - idle) <= NEAR


def _line(story: Story, said: dict[str, Any]) -> bool | None:
    if not story.lines:
        return None
    return any(
        file == story.file and (line in story.lines or function in story.functions)
        for file, line, function in said["lines"]
    )


def ratio_of(machine: Machine, story: Story) -> float | None:
    """Time of a unit after over before, by ``gputop diff``; None where it names none."""
    report = machine.json(
        "diff", *(str(machine.folder / f"{story.name}-{side}.msgpack") for side in ("before", "after"))
    )
    for measure in report["measures"]:
        if measure["name"] == "duration_ns" and measure["before"]["usual"] and measure["after"]["usual"]:
            return float(measure["after"]["usual"] / measure["before"]["usual"])
    return None


def run(machine: Machine, story: Story, seconds: float = RECORD_S) -> dict[str, Any]:
    """A whole story, as the results keep it."""
    began = time.monotonic()
    before = measured(machine, story, "before", seconds).row()
    after = measured(machine, story, "after", seconds).row() if story.fixed else None
    ratio = ratio_of(machine, story) if after is not None else None
    right = judged(story, before, after, ratio)
    took = round(time.monotonic() - began, 1)
    return {"before": before, "after": after, "ratio": ratio, "right": right, "took_s": took}


def short_verdict(said: dict[str, Any]) -> str:
    """The first sentence."""
    return re.split(r"(?<=[a-z\])])\. ", said["verdict"])[0]
