"""The time controls of a live session: hold, step back through the last minutes, return to the present."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from gputop.analysis.live import ReplayExplainer
from gputop.analysis.window import Window
from gputop.engine.frame import Frame
from gputop.playback.bookmarks import MARKED, Landmark, Landmarks, marker
from gputop.playback.feed import Explained
from gputop.playback.player import SPEEDS, ReplayFeed, mark_at
from probes.source import Sample
from replay.past.history import History
from replay.past.history_reader import HistoryReader


class Rewind:
    """Live until it is held; then the moment shown stays, and a player is opened for any other moment.

    Data is still collected meanwhile. All methods are for the screen's thread.
    """

    def __init__(
        self,
        history: History | None,
        newest: Callable[[], Frame | None],
        why: Callable[[], Explained],
        *,
        landmarks: Landmarks,
        marked: Callable[[Sample], None],
        checkpoints: Callable[[], Sequence[tuple[int, Window]]] = tuple,
    ) -> None:
        """Start live.

        Args:
            history: The last minutes.
            newest: Returns the newest frame.
            why: Returns the newest explanation.
            landmarks: The landmarks.
            marked: Records a marker.
            checkpoints: Returns where explanations of the past can start (see ``ReplayExplainer``).
        """
        self._history = history
        self._why = why
        self._checkpoints = checkpoints
        self._landmarks = landmarks
        self._newest = newest
        self._marked = marked
        self._held: Frame | None = None
        self._held_why = Explained()
        self._held_ns = 0
        self._player: ReplayFeed | None = None
        self._speed = 1.0

    # -- what is shown ------------------------------------------------------------------------

    def latest(self) -> Frame | None:
        if self._held is None:
            return self._newest()
        player = self._player
        if player is None:
            return self._held
        if player.playing and player.caught_up:
            self.go_live()
            return self._newest()
        self._held = player.latest() or self._held
        if player.position_ns < self.start_ns:
            # the history has dropped this moment: only the frame stays
            self._held_why = self.explained()
            self._close_player()
        return self._held

    def explained(self) -> Explained:
        if self._held is None:
            return self._why()
        if self._player is None:
            return self._held_why
        found = self._player.explained()
        return (
            found if found.report is not None or self._player.position_ns != self._held_ns else self._held_why
        )

    def failure(self) -> str | None:
        return self._player.failure() if self._player is not None else None

    # -- Transport ----------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        return self._held is None

    @property
    def playing(self) -> bool:
        return self.live or (self._player is not None and self._player.playing)

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def position_ns(self) -> int:
        if self._player is not None:
            return self._player.position_ns
        return self._held.time_ns if self._held is not None else self.end_ns

    @property
    def start_ns(self) -> int:
        return self._history.start_ns if self._history is not None else self.end_ns

    @property
    def end_ns(self) -> int:
        newest = self._newest()
        return newest.time_ns if newest is not None else 0

    def toggle(self) -> None:
        """Hold, or play from the moment held; without a history, back to the present."""
        if self.live:
            self._hold()
            return
        player = self._open()
        if player is None:
            self.go_live()
        else:
            player.toggle()

    def step(self, marks: int) -> None:
        self._hold()
        player = self._open()
        if player is not None:
            player.step(marks)

    def seek(self, time_ns: int) -> None:
        self._hold()
        player = self._open()
        if player is not None:
            player.seek(time_ns)

    def set_speed(self, speed: float) -> None:
        """Set the speed; no effect while live."""
        if not self.live:
            self._speed = min(max(speed, SPEEDS[0]), SPEEDS[1])
            if self._player is not None:
                self._player.set_speed(self._speed)

    def go_live(self) -> None:
        self._close_player()
        self._held, self._held_why, self._speed = None, Explained(), 1.0

    def landmarks(self) -> tuple[Landmark, ...]:
        return self._landmarks.since(self.start_ns)

    def mark(self, text: str, at_ns: int | None = None) -> None:
        """Mark a moment; it is recorded with the next mark of the session."""
        at_ns = self.position_ns if at_ns is None else at_ns
        self._landmarks.add(at_ns, MARKED, text)
        self._marked(marker(at_ns, text))

    def close(self) -> None:
        self._close_player()

    def _hold(self) -> None:
        if self.live:
            self._held_why = self._why()
            self._held = self._newest()
            self._held_ns = self._held.time_ns if self._held is not None else 0

    def _open(self) -> ReplayFeed | None:
        """Return the player at the moment held; None without history."""
        if self._player is not None or self._history is None or self._held is None:
            return self._player
        reader = HistoryReader(self._history)
        if reader.first >= len(reader.marks):
            return None
        index = mark_at(reader, self._held.time_ns)
        same = int(reader.marks[index]) == self._held.time_ns
        self._player = ReplayFeed(
            reader,
            index,
            self._speed,
            playing=False,
            frame=self._held if same else None,
            explainer=ReplayExplainer(reader, self._checkpoints()),
            landmarks=self._landmarks,
        )
        self._player.start()
        return self._player

    def _close_player(self) -> None:
        player, self._player = self._player, None
        if player is not None:
            # in a thread, since it may be in the middle of an explanation
            threading.Thread(target=player.close, name="gputop-close", daemon=True).start()
