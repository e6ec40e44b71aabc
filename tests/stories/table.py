"""The table of stories: truth beside answer, and how many of the requirements hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.stories.judge import Change, Verdict

HEAD = """# Stories: what is true of PyTorch programs, and what gputop says of them

Written by `make stories`: do not edit. Each program is recorded under the simulated GPU, whose trace tells
the truth; changes are held against the programs' own clocks. *true* is the share of the span in which no
kernel and no copy ran, *lo..hi* are the bounds, *said/wanted* stands where an answer can be right or wrong,
a cross beside what is wrong, and `-` where nothing is said. *screen* is the WHY line of the screen at 80
columns, 30 s after the start or when the loop ends before: class, cause and line. Where the kernel counted a
run-queue delay of more than 5 % of the loop for the program's threads, starved of CPU is right, too.
"""


@dataclass
class Outcome:
    """All that was judged under one condition."""

    title: str
    verdicts: list[Verdict] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _mark(right: bool | None) -> str:
    return "" if right or right is None else " ✗"


def _said(said: str | None, wanted: Sequence[str], right: bool) -> str:
    return f"{said or '-'}/{' or '.join(wanted) or 'nothing'}{_mark(right)}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def story_row(one: Verdict) -> str:
    """A line of the first table."""
    told, story = one.answer, one.run.story
    screen = "right" if one.screen_right else f"✗ `{' '.join(one.screen.text.split())}`"
    line = {None: "", True: "right", False: "✗"}[one.line_right]
    return _row(
        (
            story.name,
            str(one.run.seed),
            f"{one.run.unit_ns / 1e6:.2f}",
            _percent(one.truth.idle),
            _percent(told.proved),
            _percent(told.estimate) + _mark(one.near),
            f"{_percent(told.lower)}..{_percent(told.upper)}{_mark(one.bounds_hold)}",
            _said(told.bound_by, one.classes, one.class_right),
            _said(told.first, [cause for cause in one.causes if cause], one.cause_right),
            line,
            screen,
        )
    )


def change_row(one: Change) -> str:
    """A line of the second table."""
    promised = one.promised_ns
    right = one.direction_right and one.ratio_right
    return _row(
        (
            f"{one.pair.before} → {one.pair.after}",
            str(one.before.run.seed),
            f"{one.before.run.unit_ns / 1e6:.2f} → {one.after.run.unit_ns / 1e6:.2f}",
            _times(one.clocks),
            _times(one.difference.ratio) + _mark(right),
            one.difference.unit,
            f"{one.gain_ns / 1e6:.0f}" if one.pair.removes_cause else "",
            (f"{promised / 1e6:.0f}" if promised is not None else "-") + _mark(one.gain_holds)
            if one.pair.removes_cause
            else "",
        )
    )


def _count(of: Sequence[bool | None]) -> str:
    told = [one for one in of if one is not None]
    return f"{sum(map(bool, told))} of {len(told)}"


def summary(outcome: Outcome) -> list[tuple[str, str]]:
    """(requirement, how many hold)."""
    runs, changes = outcome.verdicts, outcome.changes
    quiet = [one for one in runs if not one.run.story.causes]
    return [
        ("1. estimate within 5 points", _count([one.near for one in runs])),
        ("1. proved and bounds hold", _count([one.bounds_hold for one in runs])),
        ("2. class right", _count([one.class_right for one in runs])),
        ("2. first cause right", _count([one.cause_right for one in runs if one.run.story.causes])),
        ("2. line right", _count([one.line_right for one in runs])),
        ("2. nothing blamed where nothing is to blame", _count([one.cause_right for one in quiet])),
        ("3. direction right", _count([one.direction_right for one in changes])),
        ("3. ratio within 10 %", _count([one.ratio_right for one in changes])),
        ("4. max_gain holds", _count([one.gain_holds for one in changes])),
        ("5. class, cause and line on the screen", _count([one.screen_right for one in runs])),
    ]


def page(outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    text = [HEAD]
    for outcome in outcomes:
        text.append(f"\n## {outcome.title}\n")
        text.append(_row(("requirement", "holds in")))
        text.append(_row(("---", "---")))
        text += [_row(pair) for pair in summary(outcome)]
        text.append("")
        text.append(
            _row(
                (
                    *("story", "seed", "ms a unit", "true idle %", "proved %", "estimate %", "lo..hi %"),
                    *("class said/wanted", "first cause said/wanted", "line", "screen"),
                )
            )
        )
        text.append(_row(["---"] * 11))
        text += map(story_row, outcome.verdicts)
        text.append("")
        text.append(
            _row(
                (
                    *("change", "seed", "ms a unit", "clocks", "diff", "unit"),
                    *("gain in ms", "max_gain in ms"),
                )
            )
        )
        text.append(_row(["---"] * 8))
        text += map(change_row, outcome.changes)
        text += [f"\nFailed: {failure}" for failure in outcome.failures]
    return "\n".join(text) + "\n"
