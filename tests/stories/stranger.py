"""Whether somebody who has never seen gputop names cause, line and fix of a run from its first screen."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from replay.reader import SessionReader
from tests.first_screen import FirstScreen, first_screen
from tests.stories.judge import STARVATION, Verdict
from tests.stories.recording import Run
from tests.stories.screen_line import shown_until

STARVED, FREES_A_CPU = (
    "starved of CPU",
    r"\bCPUs?\b",
)  # what is reported, and what is to be done, where others have the CPU


def painted(run: Run, size: tuple[int, int]) -> FirstScreen:
    """The screen 30 s after the recording's start, or when the loop ends before; no key was pressed."""
    with contextlib.closing(SessionReader(run.recording)) as reader:
        end_ns = shown_until(run, reader)
        mark = max(int(reader.marks.searchsorted(end_ns, side="right")) - 1, 0)
    return first_screen(run.recording, size, mark)


@dataclass(frozen=True, slots=True)
class Stranger:
    """What is read from a screen, beside what is true."""

    verdict: Verdict
    screen: FirstScreen

    @property
    def _starved(self) -> bool:
        return self.verdict.starved and self.screen.number in STARVATION

    @property
    def names_cause(self) -> bool:
        """In words, not only by its number."""
        words = STARVED if self._starved else self.verdict.run.story.what
        return self.screen.number in self.verdict.causes and bool(re.search(words, self.screen.what))

    @property
    def names_line(self) -> bool:
        """One of those that are to blame; whoever takes the CPU is at no line."""
        story = self.verdict.run.story
        wanted = {f"{story.program.name}:{line}" for line in story.lines}
        return self._starved or self.screen.place in wanted

    @property
    def names_fix(self) -> bool:
        """What the author of the program did about it."""
        words = FREES_A_CPU if self._starved else self.verdict.run.story.fix
        return bool(re.search(words, self.screen.fix))
