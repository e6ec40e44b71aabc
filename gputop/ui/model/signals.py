"""Who sends signals for the screen, which itself does not."""

from __future__ import annotations

from typing import Protocol

from gputop.engine.frame import ProcessRow


class Sender(Protocol):
    """Sends signals to the process that was aimed at."""

    def refusal(self, row: ProcessRow) -> str:
        """Why no signal can be sent to a process, "" when one can."""

    def send(self, row: ProcessRow, index: int) -> str:
        """Send one of ``OFFERED``; says what came of it."""
