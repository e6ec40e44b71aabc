"""Whether gputop names what the GPU waits for in the end: a table of programs beside their truth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gputop.analysis.answer.report import DiagnosisKind
from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.findings.diagnosis import TITLES
from gputop.analysis.ledger import LEFT
from gputop.api.functions import explain
from tests.first_screen import FirstScreen
from tests.stories.answer import compared, explained
from tests.stories.catalogue import Pair, Story
from tests.stories.cells import count, holds, mark, ms, percent, row, screen_cell, table
from tests.stories.foreign import foreign, without_names
from tests.stories.judge import STARVATION, Compared, Judged, truth_of
from tests.stories.proofs import false_levels
from tests.stories.recording import Run
from tests.stories.screen_line import panel

TEXT = """
Programs whose GPU waits for something that is not in front of it, before and after its fix. *ends at* is the
line of the first sentence, which has to be that at which the chain ends; *idle/name* are the levels of the
idle time and of the cause's name; *foreign words* are those of a framework that no process has loaded,
*false levels* what is called proved and is not;
*screen* is the WHY panel of a screen of 80 by 24, 30 s after the start or when the loop ends before: class,
cause and line. Where the kernel counted a run-queue delay of more than 5 % and gputop says starved of CPU
first, the next finding is judged; where there is none, starved of CPU is right. The gain is that by the
program's own clock beside what was promised, which has to cover it and to be at most 1.5 times as much;
where the text says that it is what the savings above it leave of the time, these and it have to cover it.
"""
GENEROUS = 1.5  # what is promised is at most so many times what the change wins


@dataclass(frozen=True)
class Told(Judged):
    """One run of a program whose chain ends elsewhere, with the text of the explanation."""

    screen: FirstScreen
    text: str
    false_levels: tuple[str, ...] = ()

    @property
    def disturbed(self) -> bool:
        """Others had its CPUs for long, by the kernel's count, and that is not what it is about."""
        return self.starved and "cpu" not in self.run.story.classes

    @property
    def starved_first(self) -> bool:
        """That is what it is told first, and nothing that it could be told is behind that."""
        return self.disturbed and self.answer.first in STARVATION and not self.first

    @property
    def first(self) -> dict[str, Any]:
        """The first finding, behind the starvation of a disturbed run; empty without one."""
        skipped = STARVATION if self.disturbed else ()
        meant = self.run.story.what  # a story about a lock is not disturbed by its lock
        return next(
            (
                one
                for one in self.answer.findings
                if one["cause"] not in skipped or (meant and re.search(meant, str(one.get("title", ""))))
            ),
            {},
        )

    @property
    def place(self) -> tuple[str, int] | None:
        """The line of the first sentence: that of the chain's end."""
        line = self.first.get("line") or (self.answer.report.get("diagnosis") or {}).get("line")
        return (line["file"].rpartition("/")[2], line["line"]) if line else None

    @property
    def name_level(self) -> str:
        """How sure the name of the cause is."""
        return str(self.first.get("name_level", self.first.get("level", "")))

    @property
    def class_right(self) -> bool:
        """The class is one of those that are right; of a fixed program nothing is known."""
        wanted = self.run.story.classes
        return not wanted or self.answer.bound_by in (*wanted, *(("cpu",) if self.disturbed else ()))

    @property
    def named(self) -> bool:
        """The cause is named in words that the program's author would accept."""
        if self.starved_first:
            return True
        said = " ".join((self.answer.report["verdict"], str(self.first.get("title", ""))))
        return bool(re.search(self.run.story.what, said))

    @property
    def end_right(self) -> bool:
        """The line is one at which the chain ends; of what is no fault the first sentence names it."""
        story, line = self.run.story, self.first.get("line")
        if self.starved_first:
            return True
        if not self.first:
            said = re.findall(rf"{re.escape(story.program.name)}:(\d+)", self.answer.report["verdict"])
            return bool(said) and int(said[0]) in story.ends
        if story.python == "native":
            functions = [one.removesuffix("()") for one in story.end.split(" | ")]
            return line is not None and any(one in line["function"] for one in functions)
        return self.place is not None and self.place[0] == story.program.name and self.place[1] in story.ends

    @property
    def fix_right(self) -> bool:
        """Where the author's fix has a name, the advice says it."""
        if self.starved_first:
            return True
        return bool(re.search(self.run.story.fix, " ".join(self.first.get("advice", ()))))

    @property
    def screen_right(self) -> bool:
        """The WHY panel at 80 columns has the right answer."""
        return panel_right(self.run.story, self.screen, disturbed=self.disturbed)

    @property
    def level_right(self) -> bool:
        """A name that can only be guessed is not proved."""
        return not self.run.story.hint or self.name_level != "proved"

    @cached_property
    def foreign(self) -> list[str]:
        """Words of frameworks that it has not loaded."""
        return foreign(self.text, self.run.story.loads)

    @property
    def right(self) -> bool:
        """All of it."""
        return (
            self.near
            and self.class_right
            and self.named
            and self.end_right
            and self.fix_right
            and self.level_right
            and not self.foreign
            and not self.false_levels
            and self.screen_right
        )


def panel_right(story: Story, screen: FirstScreen, *, disturbed: bool = False) -> bool:
    """Whether a panel names class, cause and line; or that others have the CPU, where that is so."""
    classes = (*story.classes, *(("cpu",) if disturbed else ()))
    titles = [TITLES[DiagnosisKind(kind)].partition(" (")[0].lower() for kind in classes]
    if not any(title in screen.text.lower() for title in titles):
        return False
    if disturbed and screen.number in STARVATION:
        return True
    if not screen.number:  # of what is no fault a sentence tells, which may go on in the next line
        sentence = " ".join(screen.text.split())
        lines = re.findall(rf"{re.escape(story.program.name)}:(\d+)", sentence)
        return bool(lines) and int(lines[0]) in story.ends and bool(re.search(story.what, sentence))
    file, _, line = screen.place.rpartition(":")
    named = bool(file) and story.program.name.startswith(file.removesuffix("…"))
    placed = named and int(line) in story.ends
    return bool(re.search(story.what, screen.what)) and (story.python == "native" or placed)


def told(run: Run) -> Told:
    """Asks for the explanation, as JSON and as text."""
    answer = explained(run)
    report = explain(run.recording)
    text = without_names(report_to_text(report), run.story.program)
    return Told(run, answer, truth_of(run, answer.span_ns), panel(run), text, tuple(false_levels(report)))


class Changed(Compared[Told]):
    """A program before and after its fix."""

    may_abstain = True

    @property
    def promised_ns(self) -> int | None:
        """What the first finding promised."""
        said = self.before.first.get("max_gain_ns")
        return None if said is None else int(said)

    @property
    def gain_right(self) -> bool:
        """What is promised covers the gain, and is not much more.

        Savings add up to the span at most. Where one is told to be what those above it leave (a program that
        is starved of CPU has that first, which goes with the cause in part), all of them cover the gain.
        """
        said, first = self.promised_ns, self.before.first
        if not self.pair.removes_cause:  # nothing is wrong before
            return True
        if said is None:
            return False
        findings = self.before.answer.findings
        left = first.get("gain_because") == LEFT
        above = sum(int(one["max_gain_ns"]) for one in findings[: findings.index(first)]) if left else 0
        return self.gain_ns <= said + above and said <= GENEROUS * self.gain_ns

    @property
    def quiet_after(self) -> bool:
        """The cause is not blamed any more: neither at that function nor where no line is known."""

        def blamed(finding: dict[str, Any]) -> tuple[str, str]:
            return finding.get("cause", ""), (finding.get("line") or {}).get("function", "")

        return blamed(self.before.first) not in map(blamed, self.after.answer.findings)


def changed(pair: Pair, before: Told, after: Told) -> Changed:
    """Asks for the comparison."""
    return Changed(pair, before, after, compared(before.run, after.run))


@dataclass
class Ends:
    """All that was judged under one condition."""

    title: str
    told: list[Told] = field(default_factory=list)
    changes: list[Changed] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every requirement does."""
        return not self.failures and holds(summary(self))


HEAD = (
    "program",
    "idle true/said %",
    "class said/wanted",
    "first cause",
    "ends at",
    "idle/name",
    "foreign words, false levels",
    "screen",
)
CHANGE_HEAD = ("change", "clocks", "diff", "unit", "gain true/said ms", "still blamed")


def told_row(one: Told) -> str:
    """A line of the first table."""
    story, answer = one.run.story, one.answer
    first = f"{one.first['cause']} {one.first['title']}" if one.first else "nothing"
    place = f"{one.place[0]}:{one.place[1]}" if one.place else "-"
    wanted = "/" + " or ".join(story.classes) if story.classes else ""
    blamed, wrong = bool(story.end), (*one.foreign, *one.false_levels)
    return row(
        (
            story.name,
            f"{percent(one.truth.idle)}/{percent(answer.estimate)}{mark(one.near)}",
            f"{answer.bound_by}{wanted}{mark(one.class_right)}",
            f"{first}{mark(one.named and one.fix_right) if blamed else ''}",
            f"{place}{mark(one.end_right) if blamed else ''}",
            f"{one.first.get('level', '-')}/{one.name_level or '-'}{mark(one.level_right)}",
            f"{', '.join(wrong) or '-'}{mark(not wrong)}",
            "" if not blamed else screen_cell(one.screen_right, one.screen.text),
        )
    )


def change_row(one: Changed) -> str:
    """A line of the second table."""
    said, promised = one.difference.ratio, one.promised_ns
    still = [f"{found['cause']}" for found in one.after.answer.findings]
    return row(
        (
            f"{one.pair.before} → {one.pair.after}",
            f"{one.clocks:.3f}",
            f"{'-' if said is None else f'{said:.3f}'}{mark(one.direction_right and one.ratio_right)}",
            one.difference.unit,
            f"{one.gain_ns / 1e6:.0f}/{ms(promised)}{mark(one.gain_right)}",
            f"{' '.join(still) or '-'}{mark(one.quiet_after)}",
        )
    )


def summary(ends: Ends) -> list[tuple[str, str]]:
    """(requirement, how many hold)."""
    blamed = [one for one in ends.told if one.run.story.end]
    return [
        ("idle time within 5 points", count([one.near for one in ends.told])),
        ("class right", count([one.class_right for one in blamed])),
        ("cause and fix in words", count([one.named and one.fix_right for one in blamed])),
        ("line of the chain's end", count([one.end_right for one in blamed])),
        ("level of the name", count([one.level_right for one in blamed])),
        ("class, cause and line on the screen", count([one.screen_right for one in blamed])),
        ("no word of a framework that is not loaded", count([not one.foreign for one in ends.told])),
        ("nothing called proved that is not", count([not one.false_levels for one in ends.told])),
        ("diff: direction", count([one.direction_right for one in ends.changes])),
        ("diff: ratio within 10 %, or abstains", count([one.ratio_right for one in ends.changes])),
        ("gain covers the truth, at most 1.5 times", count([one.gain_right for one in ends.changes])),
        ("not blamed after the fix", count([one.quiet_after for one in ends.changes])),
    ]


def section(title: str, outcomes: Sequence[Ends]) -> str:
    """Their part of the page."""
    text = [f"# {title}\n{TEXT}"]
    for one in outcomes:
        starved = sum(told.starved for told in one.told)
        text += [
            f"## {one.title}",
            "",
            f"Starved of CPU for more than 5 %: {starved} of {len(one.told)} runs.",
            "",
        ]
        text += table(("requirement", "holds in"), map(row, summary(one)))
        text += table(HEAD, map(told_row, one.told))
        text += table(CHANGE_HEAD, map(change_row, one.changes))
        text += [f"Failed: {failure}" for failure in one.failures]
    return "\n".join(text).rstrip() + "\n"
