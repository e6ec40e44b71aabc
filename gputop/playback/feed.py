"""The interface that the screen polls, of the live engine and of the player of recordings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gputop.engine.frame import Frame
from gputop.playback.bookmarks import Landmark

if TYPE_CHECKING:
    from gputop.analysis.answer.picture import Lanes, OneStep
    from gputop.analysis.answer.report import Report
    from gputop.analysis.evidence.gatherer import End

OLD_NS = 2_000_000_000  # an older explanation is shown as old


@dataclass(frozen=True, slots=True)
class RecordingState:
    """The session file being written."""

    path: str
    bytes: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Explained:
    """Why the GPU was idle in the seconds before a moment."""

    report: Report | None = None  # the explanation; None: none yet
    end_ns: int = 0  # the moment, CLOCK_MONOTONIC
    start_ns: int = 0  # the origin of the report's times
    problem: str = ""  # why there is no report, "" while one is coming
    lanes: Lanes | None = None  # the same seconds column by column, or None
    detail_age_ns: int = 0  # how much older than that moment the chains, the advice and the savings are
    steps: tuple[OneStep, ...] = ()  # one step of each process with a loop
    first_look: bool = False  # True for a shorter window, before the full explanation of that moment
    ended: End | None = None  # the end of the last process that made CUDA calls, if none is alive
    called_ns: int = 0  # the approximate end of the newest CUDA call; 0: none so far
    # its length while that is shorter than usual, because gputop is above its budget of memory; 0: it is not
    shortened_ns: int = 0

    def age_ns(self, now_ns: int) -> int:
        """Return the age of the figures at a moment."""
        return max(now_ns - self.end_ns, 0)


class Transport(Protocol):
    """The time controls. All calls return at once."""

    @property
    def live(self) -> bool:
        """True if the present is shown; False in a replay."""

    @property
    def playing(self) -> bool:
        """True if time runs."""

    @property
    def speed(self) -> float:
        """Recorded seconds per second."""

    @property
    def position_ns(self) -> int:
        """The moment shown, CLOCK_MONOTONIC of the recording."""

    @property
    def start_ns(self) -> int:
        """The first instant recorded."""

    @property
    def end_ns(self) -> int:
        """The last instant recorded."""

    def toggle(self) -> None:
        """Play or pause."""

    def step(self, marks: int) -> None:
        """Pause and go ``marks`` forward (backward when negative)."""

    def seek(self, time_ns: int) -> None:
        """Go to an instant."""

    def set_speed(self, speed: float) -> None:
        """Set the recorded seconds per second."""

    def go_live(self) -> None:
        """Go to the newest frame and follow it."""

    def landmarks(self) -> tuple[Landmark, ...]:
        """Return the landmarks in order."""

    def mark(self, text: str, at_ns: int | None = None) -> None:
        """Mark the moment shown, or another one, with a note."""


class RecorderControls(Protocol):
    """Starts and ends recordings on the screen. Texts are for the user."""

    def held(self) -> tuple[int, int]:
        """Return (ns, bytes) of the past that a recording can include; (0, 0) for none."""

    def default_path(self) -> str:
        """Return a file name for a recording."""

    def start(self, path: str, *, history: bool) -> str:
        """Record from now on.

        Args:
            path: The file, which must not exist.
            history: Include the past.

        Returns:
            "", or an error.
        """

    def stop(self) -> None:
        """End the recording; ``pop_notice`` reports when the file is complete."""

    def pop_notice(self) -> str:
        """Return a notice since the last call, or ""."""


class Feed(Protocol):
    """A latest-value slot of frames: the screen never waits for it and never queues."""

    @property
    def transport(self) -> Transport:
        """The time controls."""

    @property
    def recorder(self) -> RecorderControls | None:
        """The recorder; None in a replay."""

    def latest(self) -> Frame | None:
        """Return the frame to show; None before the first."""

    def present(self) -> tuple[Frame, Explained] | None:
        """Return the newest live frame, also while another moment is shown; None in a replay."""

    def explained(self) -> Explained:
        """Return the explanation of the frame to show."""

    def failure(self) -> str | None:
        """Return why the source failed, or None."""

    def recording(self) -> RecordingState | None:
        """Return the recording under way."""

    def outcome(self) -> str:
        """Return how the command ended: ``python train.py ended with status 1 after 0.4 s``, or ""."""

    def log_lines(self, after: int) -> tuple[int, list[str]]:
        """Return the next index, and the command's output lines since index ``after`` (0 at first)."""
