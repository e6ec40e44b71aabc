"""Which frames a history has taken: those that are shown, and beside them the present while time is held."""

from __future__ import annotations

from gputop.engine.frame import Frame


class Taken:
    """The last frame of each of two streams that go on by themselves: what is shown, and the present."""

    def __init__(self) -> None:
        """None so far."""
        self._last: dict[bool, Frame] = {}

    def before(self, frame: Frame, *, present: bool) -> tuple[bool, int | None]:
        """Note a frame: whether it is new to the history, and the time of the one before it in its stream.

        Args:
            frame: The frame.
            present: Whether it is of the present rather than the one that is shown.
        """
        last = self._last.get(present)
        new = all(frame is not one for one in self._last.values())
        self._last[present] = frame
        return new, last.time_ns if last is not None else None
