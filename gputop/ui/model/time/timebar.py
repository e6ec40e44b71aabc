"""The line of time: where a replay or a live screen that went back stands, and what lies around it."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.format import format_duration, width_of
from gputop.playback.bookmarks import FINDING, LOSS, MARKED
from gputop.ui.model.look import Glyphs, Line, Span, merged

# sign, token; where several fall on one column, the last of these is shown
_SIGNS = {LOSS: ("~", "unknown"), FINDING: ("!", "alert"), MARKED: ("M", "value")}
_ORDER = tuple(_SIGNS)


@dataclass(frozen=True, slots=True)
class TransportView:
    """Where the screen stands in time.

    Attributes:
        playing: True if time runs.
        speed: Recorded seconds per second.
        landmarks: (time, kind) of the moments worth going to, in order.
    """

    playing: bool
    speed: float
    position_ns: int
    start_ns: int
    end_ns: int
    landmarks: tuple[tuple[int, str], ...] = ()


def transport_line(view: TransportView, width: int, glyphs: Glyphs) -> Line:
    """``▶ playing 4x  ├──!──~~──M──●────┤ 07:12/10:00``.

    Args:
        view: Where the screen stands.
    """
    left, length, right = _parts(view, width, glyphs)
    total = max(view.end_ns - view.start_ns, 0)

    def column(time_ns: int) -> int:
        return round((time_ns - view.start_ns) / total * (length - 1)) if total else 0

    place = column(min(max(view.position_ns, view.start_ns), view.start_ns + total))
    track: list[Span] = [(glyphs.track, "chrome" if x < place else "rule") for x in range(length)]
    for kind in _ORDER:
        for time_ns, found in view.landmarks:
            if found == kind and view.start_ns <= time_ns <= view.end_ns:
                track[column(time_ns)] = _SIGNS[kind]
    track[place] = (glyphs.position, "value")
    return glyphs.line(merged([(left, "chrome"), *track, (right, "chrome")]), width)


def moment_at(view: TransportView, width: int, glyphs: Glyphs, x: int) -> int | None:
    """The time that a column of the line stands for; None beside the track.

    Args:
        view: Where the screen stands.
        x: The column.
    """
    left, length, _ = _parts(view, width, glyphs)
    place = x - width_of(left)
    if not 0 <= place < length:
        return None
    return view.start_ns + round((view.end_ns - view.start_ns) * place / (length - 1))


def _parts(view: TransportView, width: int, glyphs: Glyphs) -> tuple[str, int, str]:
    """What stands to the left of the track, the track's length, and what stands to its right."""
    sign = glyphs.play if view.playing else glyphs.pause
    word = "playing" if view.playing else "paused "
    total = max(view.end_ns - view.start_ns, 0)
    at = min(max(view.position_ns - view.start_ns, 0), total)
    left = f" {sign} {word} {view.speed:g}x ".ljust(17)
    right = f" {format_duration(at)}/{format_duration(total)} "
    return left, max(width - width_of(left) - width_of(right), 3), right
