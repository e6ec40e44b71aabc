"""What the screen polls: implemented by the live engine and by the player of recordings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gputop.engine.frame import Frame
from gputop.playback.bookmarks import Landmark

if TYPE_CHECKING:
    from gputop.analysis.answer.picture import Lanes, OneStep
    from gputop.analysis.answer.report import Report
    from gputop.analysis.evidence.gatherer import End

OLD_NS = 2_000_000_000  # an explanation that is older is of another time


@dataclass(frozen=True, slots=True)
class RecordingState:
    """The session file being written."""

    path: str
    bytes: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Explained:
    """Why the GPU was idle in the seconds before a moment.

    Attributes:
        report: The explanation, None while there is none.
        end_ns: The moment, CLOCK_MONOTONIC.
        start_ns: What the report's times count from.
        problem: Why there is none, "" when one is coming.
        lanes: The same seconds column by column, None while there are none.
        detail_age_ns: How much older than that moment the chains, the advice and what a fix wins are.
        steps: One step of each process that repeats something.
        first_look: Whether it is about less than an explanation is, and another of that moment follows.
        ended: The end of the last process that made CUDA calls, where none lives.
        called_ns: About when the newest CUDA call ended; 0: there was none so far.
    """

    report: Report | None = None
    end_ns: int = 0
    start_ns: int = 0
    problem: str = ""
    lanes: Lanes | None = None
    detail_age_ns: int = 0
    steps: tuple[OneStep, ...] = ()
    first_look: bool = False
    ended: End | None = None
    called_ns: int = 0

    def age_ns(self, now_ns: int) -> int:
        """How old the figures are at a moment; what is older than ``OLD_NS`` is shown as old."""
        return max(now_ns - self.end_ns, 0)


class Transport(Protocol):
    """The time controls. All calls return at once."""

    @property
    def live(self) -> bool:
        """Whether the present is shown; False in a replay."""

    @property
    def playing(self) -> bool:
        """Whether time runs."""

    @property
    def speed(self) -> float:
        """Seconds of the recording in one second."""

    @property
    def position_ns(self) -> int:
        """Where the replay stands, CLOCK_MONOTONIC of the recording."""

    @property
    def start_ns(self) -> int:
        """The first instant recorded."""

    @property
    def end_ns(self) -> int:
        """The last instant recorded."""

    def toggle(self) -> None:
        """Play or pause."""

    def step(self, marks: int) -> None:
        """Pause and go this many marks forward (backward when negative)."""

    def seek(self, time_ns: int) -> None:
        """Go to an instant."""

    def set_speed(self, speed: float) -> None:
        """Play this many times as fast as it happened."""

    def go_live(self) -> None:
        """To the newest frame, and on with it."""

    def landmarks(self) -> tuple[Landmark, ...]:
        """The moments worth going to, in order."""

    def mark(self, text: str, at_ns: int | None = None) -> None:
        """Mark the moment shown, or another one, with a note."""


class RecorderControls(Protocol):
    """What can be recorded while the screen is up. Texts are for the user."""

    def held(self) -> tuple[int, int]:
        """(ns, bytes) of the past that a recording could begin with; (0, 0) when there is none."""

    def default_path(self) -> str:
        """Where to record unless the user says otherwise."""

    def start(self, path: str, *, history: bool) -> str:
        """Record from now on.

        Args:
            path: The file; nothing may be there.
            history: Whether the past that is held goes into it.

        Returns:
            "", or why it cannot be.
        """

    def stop(self) -> None:
        """End the recording; ``pop_notice`` says so when the file is complete."""

    def pop_notice(self) -> str:
        """What has happened since the last call, ""."""


class Feed(Protocol):
    """A latest-value slot of frames: the screen never waits for it and never queues."""

    @property
    def transport(self) -> Transport:
        """The time controls."""

    @property
    def recorder(self) -> RecorderControls | None:
        """Starts and ends recordings; ``None`` in a replay."""

    def latest(self) -> Frame | None:
        """The newest frame, ``None`` before the first."""

    def present(self) -> tuple[Frame, Explained] | None:
        """The newest frame of what is observed, also while another moment is shown; None in a replay."""

    def explained(self) -> Explained:
        """The newest explanation."""

    def failure(self) -> str | None:
        """A sentence when the source died."""

    def recording(self) -> RecordingState | None:
        """The recording under way."""

    def outcome(self) -> str:
        """How the started command has ended: ``python train.py ended with status 1 after 0.4 s``; else ""."""

    def log_lines(self, after: int) -> tuple[int, list[str]]:
        """Lines of output of the started command.

        Args:
            after: The index returned by the last call, 0 at first.

        Returns:
            The next index, and the lines since ``after``.
        """
