"""The live screen of a program in a terminal of 80 by 24: when its WHY panel has the right answer."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probes.proc.procfs import descendants
from tests.bench.processes import gputop_ticks
from tests.bench.tmux import Terminal
from tests.faults import priority
from tests.first_screen import FirstScreen, read
from tests.gputop_command import GPUTOP
from tests.stories.catalogue import Story
from tests.stories.cells import count, mark, percent, row, table
from tests.stories.delays import Delays
from tests.stories.ends import panel_right
from tests.stories.judge import STARVED
from tests.stories.recording import command_of, environment

SIZE = (80, 24)
WITHIN_S = 30.0  # of the start of gputop, by which the answer has to be there
MOSTLY = 0.5  # of the looks after the first right one, in which it has to be right
TEXT = """The programs under `gputop -- PROGRAM` in a terminal of 80 by 24, read twice a second: when the WHY
panel first named class, cause and line, and in which share of the looks after that it did, to the end of
30 s; once the program has ended, a page about it may cover the panel. Where the kernel counted a run-queue
delay of more than 5 %, starved of CPU is right.
"""
_LOOKS_S = 0.5
_CLOSES_S = 5.0
_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Live:
    """What the screen said.

    Attributes:
        first_s: When it was right for the first time, after the first frame; None: it never was.
        held: In which share of the looks after that it was right.
        screen: The last one with a cause.
        cpu: What gputop used meanwhile, of a core.
        delayed: How long the program waited for a CPU, by the kernel's count, of the time.
    """

    story: Story
    first_s: float | None
    held: float
    screen: FirstScreen
    cpu: float = 0.0
    delayed: float = 0.0

    @property
    def right(self) -> bool:
        """It was right in time, and stayed so in most looks."""
        return self.first_s is not None and self.held > MOSTLY


HEAD = ("program", "right after s", "of the looks after that", "waited for a CPU %", "gputop, % of a core")


def live_row(one: Live) -> str:
    """A line of the table."""
    after = "-" if one.first_s is None else f"{one.first_s:.1f}"
    shown = "" if one.right else f" `{' '.join(' '.join(one.screen.text.splitlines()[:4]).split())}`"
    cells = (one.story.name, f"{after}{mark(one.right)}{shown}", percent(one.held))
    return row((*cells, percent(one.delayed), percent(one.cpu)))


def section(title: str, lives: Sequence[Live], failures: Sequence[str]) -> str:
    """The part of the page."""
    held = count([one.right for one in lives])
    text = [
        f"# {title}\n",
        TEXT,
        f"Right within {WITHIN_S:.0f} s: {held}.\n",
        *table(HEAD, map(live_row, lives)),
    ]
    return "\n".join([*text, *(f"Failed: {failure}" for failure in failures)]).rstrip() + "\n"


def watched(story: Story, folder: Path, seconds: float = WITHIN_S, backend: str = "cuda") -> Live:
    """Starts gputop with the program in a terminal, and reads its panel until the time is over."""
    folder.mkdir(parents=True, exist_ok=True)
    env = environment(story, 1, seconds + 10, folder, backend)
    changed = [f"{key}={value}" for key, value in env.items() if os.environ.get(key) != value]
    command = ["env", *changed, *GPUTOP, "--simgpu", "--", *command_of(story.command, backend, story)]
    with Terminal(folder, SIZE) as terminal:
        terminal.keys(shlex.join(command), "Enter")
        terminal.wait(lambda: " lost " in terminal.screen(), _PATIENCE_S)
        began, pid = time.monotonic(), terminal.child()
        used = gputop_ticks(pid)
        priority.of_session(pid, priority.RECORDER)
        for process in descendants((pid,)):
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                if os.getsid(process) != os.getsid(pid):
                    priority.of_session(process, priority.PROGRAM)
        with Delays(pid) as delays:
            seen = _looked(story, terminal, began + seconds, delays)
        cpu = (gputop_ticks(pid) - used) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
        _quit(terminal)
    return replace(seen, cpu=cpu, delayed=delays.share)


def _quit(terminal: Terminal) -> None:
    """Ends gputop: once a program has ended, q closes the page about it first."""
    for _ in range(2):
        terminal.keys("q")
        with contextlib.suppress(TimeoutError):
            terminal.wait(terminal.at_prompt, _CLOSES_S)
            return
    terminal.wait(terminal.at_prompt, _PATIENCE_S)


def _looked(story: Story, terminal: Terminal, until: float, delays: Delays) -> Live:
    began = time.monotonic()
    first: float | None = None
    looks: list[bool] = []
    screen = read("")
    while time.monotonic() < until:
        time.sleep(_LOOKS_S)
        shown = read(terminal.screen())
        screen = shown if shown.number or not screen.number else screen
        right = panel_right(story, shown, disturbed=delays.share > STARVED and "cpu" not in story.classes)
        if right and first is None:
            first = time.monotonic() - began
        covered = "Summary ─" in shown.text  # it has ended: a page about it leaves of the panel its title
        if first is not None and not covered and " WHY" in shown.text.replace("›", " "):
            looks.append(right)
    return Live(story, first, sum(looks) / max(len(looks), 1), screen)
