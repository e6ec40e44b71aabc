"""The time bar: the position of a replay or a paused live screen, and its landmarks."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.format import format_duration, width_of
from gputop.playback.bookmarks import FINDING, LOSS, MARKED
from gputop.ui.model.look import Glyphs, Line, Span, merged

# sign, token; of several on one column, the last is shown
_SIGNS = {LOSS: ("~", "unknown"), FINDING: ("!", "alert"), MARKED: ("M", "value")}
_ORDER = tuple(_SIGNS)


@dataclass(frozen=True, slots=True)
class TransportView:
    """The position in time."""

    playing: bool  # True if time runs
    speed: float  # recorded seconds per second
    position_ns: int
    start_ns: int
    end_ns: int
    landmarks: tuple[tuple[int, str], ...] = ()  # (time, kind) of the landmarks, in order


def transport_line(view: TransportView, width: int, glyphs: Glyphs) -> Line:
    """Return ``▶ playing 4x  ──!──~~──M──●──── 07:12/10:00``."""
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
    """Return the time of a column of the line; None beside the track."""
    left, length, _ = _parts(view, width, glyphs)
    place = x - width_of(left)
    if not 0 <= place < length:
        return None
    return view.start_ns + round((view.end_ns - view.start_ns) * place / (length - 1))


def _parts(view: TransportView, width: int, glyphs: Glyphs) -> tuple[str, int, str]:
    """Return the text before the track, the track's length, and the text after it."""
    sign = glyphs.play if view.playing else glyphs.pause
    word = "playing" if view.playing else "paused "
    total = max(view.end_ns - view.start_ns, 0)
    at = min(max(view.position_ns - view.start_ns, 0), total)
    left = f" {sign} {word} {view.speed:g}x ".ljust(17)
    right = f" {format_duration(at)}/{format_duration(total)} "
    return left, max(width - width_of(left) - width_of(right), 3), right
