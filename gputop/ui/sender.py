"""Sends signals to other processes."""

from __future__ import annotations

from collections.abc import Callable

from gputop.engine.frame import ProcessRow
from gputop.process.signals import OFFERED, Aim, SignalError, SignalTarget


class OwnSender:
    """Sends signals with the privileges of this process.

    Attributes:
        offered: The signals, each with its effect.
    """

    offered = OFFERED

    def __init__(self, sent: Callable[[], object]) -> None:
        """Create a sender without a target.

        Args:
            sent: Called after a signal, to report later what became of the process.
        """
        self.aim: Aim | None = None
        self._sent = sent

    def refusal(self, row: ProcessRow) -> str:
        """Aim at a process; return why it cannot be signalled, or ""."""
        self.let_go()
        try:
            self.aim = Aim(SignalTarget(row.pid, row.name, row.user, row.start_ns))
        except SignalError as error:
            return str(error)
        return ""

    def send(self, row: ProcessRow, index: int) -> str:
        """Send one of ``offered``; return an error or ""."""
        if self.aim is None:
            return "nothing was sent"
        try:
            refusal = self.aim.send(OFFERED[index][0])
        except SignalError as error:
            return str(error)
        self._sent()
        return refusal

    def outcome(self) -> str:
        """Return what became of the target, "" without one; release it."""
        outcome = self.aim.outcome() if self.aim is not None else ""
        self.let_go()
        return outcome

    def let_go(self) -> None:
        """Release the target."""
        if self.aim is not None:
            self.aim.close()
        self.aim = None
