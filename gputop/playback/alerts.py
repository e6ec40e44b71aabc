"""Alerts: rules such as ``idle > 50 for 5m``, checked against frames and explanations, live or recorded.

The named rules are those of ``deploy/alerts.yml``. A rule is true or false for a subject (a GPU, a process);
it fires once it has been true for its time, and again only after it was false.
"""

from __future__ import annotations

import operator
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gputop.engine.frame import Frame, GpuRow
from gputop.format import NS_PER_S, format_count, format_percent
from gputop.playback.feed import OLD_NS, Explained

EVERY_NS = NS_PER_S  # between two checks
HOLE_NS = 30 * NS_PER_S  # without figures for so long, a rule starts over
MOST_SUBJECTS = 1024  # of each rule
MOST_RULES = 32
SLOWER, ERRORS = "slower", "errors"
_PARTS = 60  # of the time over which figures are averaged
_HALF_HOUR_NS = 1_800 * NS_PER_S
_UNITS = {"s": 1, "m": 60, "h": 3_600}
_RULE = re.compile(
    r"(?P<figure>[a-z]+)(?:\s+over\s+(?P<over>\d+)(?P<over_unit>[smh]))?\s*(?P<sign>[<>])\s*"
    r"(?P<bound>\d+(?:\.\d+)?)\s*(?P<percent>%?)(?:\s+for\s+(?P<held>\d+)(?P<held_unit>[smh]))?"
)
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {">": operator.gt, "<": operator.lt}
Figures = Iterable[tuple[str, float]]  # subject, figure


@dataclass(frozen=True, slots=True)
class AlertFigure:
    """The figure of a rule: its meaning, its unit, and its value now for each subject."""

    about: str
    unit: str
    now: Callable[[Frame, Explained], Figures]
    total: bool = False  # a counter: its increase is compared, not its mean


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; ``text`` as it was written, ``name`` of a named one."""

    text: str
    figure: str
    over_ns: int
    sign: str
    bound: float
    held_ns: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule that has fired."""

    time_ns: int  # when, CLOCK_MONOTONIC
    rule: Rule
    subject: str  # ``GPU 0``, ``process 42, cudaMalloc``; no text of the observed program
    value: float  # the figure at that moment

    def text(self) -> str:
        """``idle > 50 for 5m: GPU 0 is at 63 %``."""
        unit = FIGURES[self.rule.figure].unit
        shown = format_percent(self.value) if unit == "%" else format_count(self.value)
        name = f"{self.rule.name}: " if self.rule.name else ""
        return f"{name}{self.rule.text}: {self.subject} is at {shown}{f' {unit}' if unit else ''}"


def _idle(_frame: Frame, explained: Explained) -> Figures:
    report = explained.report
    if report is not None:
        for gpu in report.gpus:
            yield gpu.label, 100 * gpu.account.proved_ns / max(gpu.span_ns, 1)


def _errors(frame: Frame, _explained: Explained) -> Figures:
    window_s = max(frame.window_ns, 1) / NS_PER_S
    for process in frame.processes:
        for call in process.calls:
            if not call.nested:
                yield f"process {process.pid}, {call.api}", call.errors / window_s


def _steps(_frame: Frame, explained: Explained) -> Figures:
    for step in explained.steps:
        yield f"process {step.pid}", step.median_ns / 1e6


def _of_gpus(
    read: Callable[[GpuRow], float | None], scale: float = 1.0
) -> Callable[[Frame, Explained], Figures]:
    def now(frame: Frame, _explained: Explained) -> Figures:
        for gpu in frame.gpus:
            if (value := read(gpu)) is not None:
                yield f"GPU {gpu.index}", value * scale

    return now


def _memory(gpu: GpuRow) -> float | None:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return 100 * used / total if used is not None and total else None


FIGURES: Mapping[str, AlertFigure] = {
    "idle": AlertFigure("proved idle time of a GPU", "%", _idle),
    "step": AlertFigure("median step of a process", "ms", _steps),
    SLOWER: AlertFigure("median step of a process as a multiple of that of half an hour before", "", _steps),
    ERRORS: AlertFigure("failed calls of one function of a process, a second", "", _errors),
    "lost": AlertFigure(
        "lost events", "", lambda frame, _: [("gputop", float(frame.lost.events))], total=True
    ),
    "reduced": AlertFigure("step of gputop serve --budget", "", lambda *_: ()),
    "util": AlertFigure("utilisation of a GPU by NVML", "%", _of_gpus(lambda gpu: gpu.utilization_percent)),
    "power": AlertFigure("power of a GPU", "W", _of_gpus(lambda gpu: gpu.power_milliwatts, 1e-3)),
    "temp": AlertFigure("temperature of a GPU", "C", _of_gpus(lambda gpu: gpu.temperature_celsius)),
    "mem": AlertFigure("used memory of a GPU", "%", _of_gpus(_memory)),
}


class RuleError(ValueError):
    """The text is not a rule; the message is for the user."""


def parse(text: str) -> Rule:
    """Parse ``idle > 50 for 5m``, ``errors over 5m > 0.1 for 5m``, or the name of one of ``NAMED``.

    Raises:
        RuleError: The text is not a rule.
    """
    if (named := NAMED.get(text.strip())) is not None:
        return named
    found = _RULE.fullmatch(" ".join(text.lower().split()))
    if found is None:
        raise RuleError(f"{text!r} is not a rule such as 'idle > 50 for 5m', nor one of {', '.join(NAMED)}")
    figure = FIGURES.get(found["figure"])
    if figure is None:
        raise RuleError(f"{text!r}: {found['figure']} is not one of {', '.join(FIGURES)}")
    if found["percent"] and figure.unit != "%":
        raise RuleError(f"{text!r}: {found['figure']} is not a percentage")
    over, held = (
        int(found[part] or 0) * _UNITS[found[f"{part}_unit"] or "s"] * NS_PER_S for part in ("over", "held")
    )
    if max(over, held) > 24 * 3_600 * NS_PER_S:
        raise RuleError(f"{text!r}: a rule can cover 24h at most")
    return Rule(" ".join(text.split()), found["figure"], over, found["sign"], float(found["bound"]), held)


NAMED: dict[str, Rule] = {}
NAMED.update(
    (name, replace(parse(text), name=name))
    for name, text in (
        ("GpuWaits", "idle over 10m > 50 for 15m"),
        ("StepsSlower", "slower over 10m > 2 for 10m"),
        ("CudaErrors", "errors over 5m > 0.1 for 5m"),
        ("GputopLosesEvents", "lost over 10m > 0 for 10m"),
        ("GputopReduced", "reduced > 0 for 30m"),
    )
)


class _Subject:
    """One rule for one subject: its recent figures, and since when it is true."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._width_ns = max(EVERY_NS, rule.over_ns // _PARTS)
        self._parts: deque[tuple[int, float, int]] = deque()  # begin, sum of figures, how many
        self.newest_ns = 0
        self.since_ns: int | None = None
        self.fired = False

    def consume(self, now_ns: int, value: float) -> float | None:
        """Add a figure; return the value to compare, None while unknown."""
        rule, parts = self.rule, self._parts
        if now_ns - self.newest_ns > max(HOLE_NS, rule.over_ns):
            self.since_ns = None
        self.newest_ns = now_ns
        if not parts or now_ns - parts[-1][0] >= self._width_ns:
            parts.append((now_ns, value, 1))
        else:
            begin, total, count = parts[-1]
            parts[-1] = begin, total + value, count + 1
        back_ns = rule.over_ns + (_HALF_HOUR_NS + rule.over_ns if rule.figure == SLOWER else 0)
        while len(parts) > 1 and parts[0][0] < now_ns - back_ns:
            parts.popleft()
        newest = [(total, count) for at, total, count in parts if at >= now_ns - rule.over_ns]
        if FIGURES[rule.figure].total:
            return value - parts[0][1] / parts[0][2] if rule.over_ns else value
        if rule.figure != SLOWER:
            return sum(total for total, _ in newest) / max(sum(count for _, count in newest), 1)
        before = [total / count for at, total, count in parts if at <= now_ns - _HALF_HOUR_NS]
        now = [total / count for total, count in newest]
        return _median(now) / max(_median(before), 1e-9) if before and now else None

    def fires(self, now_ns: int, compared: float | None) -> bool:
        """Return True once, when the rule has been true for its time."""
        rule = self.rule
        if compared is None or not _SIGNS[rule.sign](compared, rule.bound):
            self.since_ns, self.fired = None, False
            return False
        self.since_ns = now_ns if self.since_ns is None else self.since_ns
        if self.fired or now_ns - self.since_ns < rule.held_ns:
            return False
        self.fired = True
        return True


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


class Alerts:
    """Checks rules once a second; not thread-safe."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self.subjects: dict[tuple[int, str], _Subject] = {}
        self._consumed_ns: int | None = None

    def consume(self, frame: Frame, explained: Explained) -> list[Alert]:
        """Return the rules that fire at a frame; an explanation that is old by then is ignored."""
        fresh = explained if abs(frame.time_ns - explained.end_ns) < OLD_NS * 4 else Explained()
        return self.hold(frame.time_ns, lambda figure: FIGURES[figure].now(frame, fresh))

    def hold(self, now_ns: int, now: Callable[[str], Figures]) -> list[Alert]:
        """Return the rules that fire at a moment."""
        before_ns = self._consumed_ns
        if not self._rules or (before_ns is not None and 0 <= now_ns - before_ns < EVERY_NS):
            return []
        if before_ns is not None and now_ns < before_ns:
            self.subjects.clear()  # a jump back in a recording
        self._consumed_ns = now_ns
        fired: list[Alert] = []
        for place, rule in enumerate(self._rules):
            figures = dict(now(rule.figure))
            room = MOST_SUBJECTS - sum(key[0] == place for key in self.subjects)
            for subject, value in figures.items():
                key = place, subject
                room -= key not in self.subjects
                if key in self.subjects or room >= 0:
                    self._hold(self.subjects.setdefault(key, _Subject(rule)), now_ns, value, subject, fired)
            self._absent(place, figures.keys(), now_ns, fired)
        return fired

    def _hold(self, one: _Subject, now_ns: int, value: float, subject: str, fired: list[Alert]) -> float:
        compared = one.consume(now_ns, value)
        if one.fires(now_ns, compared) and compared is not None:
            fired.append(Alert(now_ns, one.rule, subject, compared))
        return compared or 0.0

    def _absent(self, place: int, there: Collection[str], now_ns: int, fired: list[Alert]) -> None:
        """Update subjects without a figure: calls that are not made fail 0 times; others expire."""
        for key, one in list(self.subjects.items()):
            if key[0] != place or key[1] in there:
                continue
            if one.rule.figure == ERRORS:
                gone = not self._hold(one, now_ns, 0.0, key[1], fired)
            else:
                gone = now_ns - one.newest_ns > max(HOLE_NS, one.rule.over_ns)
            if gone:
                del self.subjects[key]
