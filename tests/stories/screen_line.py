"""What the screen says of a run, in the one line that is always there, at 80 columns and within 30 s.

Live and replay share one path: the line comes from the last seconds before a moment, as the screen has it.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from gputop.analysis.answer.report import DiagnosisKind
from gputop.analysis.findings.diagnosis import TITLES
from gputop.analysis.window import Window
from gputop.playback.feed import Explained
from gputop.ui.model.answer.verdict import verdict_line
from gputop.ui.model.answer.why import Why, why_of
from gputop.ui.model.answer.whylines import why_lines
from gputop.ui.model.look import UNICODE, plain
from replay.reader import SessionReader
from tests import fake_frames as fake
from tests.first_screen import FirstScreen, read
from tests.stories.recording import Run

WIDTH, PANEL_LINES = 80, 3
WITHIN_NS = 30_000_000_000

_CAUSE = re.compile(r"\((C\d\d) (?:proved|strong|hint)\)")
_PLACE = re.compile(r" at (\S+\.py):(\d+)")


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """The line as it is shown."""

    text: str

    @property
    def cause(self) -> str:
        """The cause that it names; "" without one."""
        found = _CAUSE.search(self.text)
        return found[1] if found else ""

    @property
    def place(self) -> tuple[str, int] | None:
        """The line of the program that it names."""
        found = _PLACE.search(self.text)
        return (found[1], int(found[2])) if found else None

    def names_class(self, kinds: tuple[str, ...]) -> bool:
        """Whether it names one of these classes."""
        titles = [TITLES[DiagnosisKind(kind)] for kind in kinds]
        # a busy GPU's class starts a sentence, and words in brackets may go where it is narrow
        return any(title.partition(" (")[0].lower() in self.text.lower() for title in titles)

    def names_line(self, program: Path, lines: tuple[int, ...]) -> bool:
        """Whether it names one of these lines of the program."""
        return self.place in {(program.name, line) for line in lines}


def shown_until(run: Run, reader: SessionReader) -> int:
    """30 s after the recording's start, or when the program's loop ends before; CLOCK_MONOTONIC."""
    ended = min((clock["ended"] for clock in run.clocks if "ended" in clock), default=0)
    end_ns = int(reader.header["start_ns"]) + WITHIN_NS
    return min(end_ns, ended) if ended else end_ns


def screen_line(run: Run) -> ScreenLine:
    """The line of that moment."""
    return ScreenLine(plain(verdict_line(_why(run), WIDTH, UNICODE, focused=False)))


def panel(run: Run) -> FirstScreen:
    """The panel of that moment, as a screen of 24 lines has it."""
    return read("\n".join(map(plain, why_lines(_why(run), WIDTH, PANEL_LINES, UNICODE))))


def _why(run: Run) -> Why:
    with contextlib.closing(SessionReader(run.recording)) as items:
        window = Window(items.header)
        end_ns = shown_until(run, items)
        for item in items.items():
            if window.feed(item) and window.end_ns >= end_ns:
                break
    verdict = window.verdict()
    explained = Explained(verdict.report, verdict.end_ns, verdict.start_ns, lanes=verdict.lanes)
    return why_of(explained, replace(fake.frame(), time_ns=verdict.end_ns))
