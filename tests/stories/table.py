"""The table of stories: truth beside answer, and how many of the requirements hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.stories.cells import count, mark, percent, row, screen_cell, table
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


def _said(said: str | None, wanted: Sequence[str], right: bool) -> str:
    return f"{said or '-'}/{' or '.join(wanted) or 'nothing'}{mark(right)}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


def story_row(one: Verdict) -> str:
    """A line of the first table."""
    told, story = one.answer, one.run.story
    line = {None: "", True: "right", False: "✗"}[one.line_right]
    return row(
        (
            story.name,
            str(one.run.seed),
            f"{one.run.unit_ns / 1e6:.2f}",
            percent(one.truth.idle),
            percent(told.proved),
            percent(told.estimate) + mark(one.near),
            f"{percent(told.lower)}..{percent(told.upper)}{mark(one.bounds_hold)}",
            _said(told.bound_by, one.classes, one.class_right),
            _said(told.first, [cause for cause in one.causes if cause], one.cause_right),
            line,
            screen_cell(one.screen_right, one.screen.text)
            + "".join(f" ✗ {wrong}" for wrong in (*one.foreign, *one.false_levels)),
        )
    )


def change_row(one: Change) -> str:
    """A line of the second table."""
    promised = one.promised_ns
    right = one.direction_right and one.ratio_right
    return row(
        (
            f"{one.pair.before} → {one.pair.after}",
            str(one.before.run.seed),
            f"{one.before.run.unit_ns / 1e6:.2f} → {one.after.run.unit_ns / 1e6:.2f}",
            _times(one.clocks),
            _times(one.difference.ratio) + mark(right),
            one.difference.unit,
            f"{one.gain_ns / 1e6:.0f}" if one.pair.removes_cause else "",
            (f"{promised / 1e6:.0f}" if promised is not None else "-") + mark(one.gain_holds)
            if one.pair.removes_cause
            else "",
        )
    )


def summary(outcome: Outcome) -> list[tuple[str, str]]:
    """(requirement, how many hold)."""
    runs, changes = outcome.verdicts, outcome.changes
    quiet = [one for one in runs if not one.run.story.causes]
    return [
        ("1. estimate within 5 points", count([one.near for one in runs])),
        ("1. proved and bounds hold", count([one.bounds_hold for one in runs])),
        ("2. class right", count([one.class_right for one in runs])),
        ("2. first cause right", count([one.cause_right for one in runs if one.run.story.causes])),
        ("2. line right", count([one.line_right for one in runs])),
        ("2. nothing blamed where nothing is to blame", count([one.cause_right for one in quiet])),
        ("3. direction right", count([one.direction_right for one in changes])),
        ("3. ratio within 10 %", count([one.ratio_right for one in changes])),
        ("4. max_gain holds", count([one.gain_holds for one in changes])),
        ("5. class, cause and line on the screen", count([one.screen_right for one in runs])),
        ("6. no word of a framework that is not loaded", count([not one.foreign for one in runs])),
        ("6. nothing called proved that is not", count([not one.false_levels for one in runs])),
    ]


STORY_HEAD = (
    *("story", "seed", "ms a unit", "true idle %", "proved %", "estimate %", "lo..hi %"),
    *("class said/wanted", "first cause said/wanted", "line", "screen"),
)
CHANGE_HEAD = (
    *("change", "seed", "ms a unit", "clocks", "diff", "unit"),
    *("gain in ms", "max_gain in ms"),
)


def page(outcomes: Sequence[Outcome]) -> str:
    """Their part of the page."""
    text = [HEAD]
    for one in outcomes:
        text += [f"## {one.title}", "", *table(("requirement", "holds in"), map(row, summary(one)))]
        text += table(STORY_HEAD, map(story_row, one.verdicts))
        text += table(CHANGE_HEAD, map(change_row, one.changes))
        text += [f"Failed: {failure}" for failure in one.failures]
    return "\n".join(text).rstrip() + "\n"
