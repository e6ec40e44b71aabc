"""Sends signals to other processes, with the rights of this one."""

from __future__ import annotations

from collections.abc import Callable

from gputop.engine.frame import ProcessRow
from gputop.process.signals import OFFERED, Aim, SignalError, SignalTarget


class OwnSender:
    """Sends signals from this process, with its rights.

    Attributes:
        offered: The signals, each with what it does.
    """

    offered = OFFERED

    def __init__(self, sent: Callable[[], object]) -> None:
        """Aim at nobody.

        Args:
            sent: Called after a signal, to look later what has become of the process.
        """
        self.aim: Aim | None = None
        self._sent = sent

    def refusal(self, row: ProcessRow) -> str:
        """Why no signal can be sent to a process, "" when one can."""
        self.let_go()
        try:
            self.aim = Aim(SignalTarget(row.pid, row.name, row.user, row.start_ns))
        except SignalError as error:
            return str(error)
        return ""

    def send(self, row: ProcessRow, index: int) -> str:
        """Send one of ``offered``; says what came of it."""
        if self.aim is None:
            return "nothing was sent"
        try:
            refusal = self.aim.send(OFFERED[index][0])
        except SignalError as error:
            return str(error)
        self._sent()
        return refusal

    def outcome(self) -> str:
        """What has become of the process since, "" where none was aimed at; aims at nobody any more."""
        outcome = self.aim.outcome() if self.aim is not None else ""
        self.let_go()
        return outcome

    def let_go(self) -> None:
        """Aim at nobody any more."""
        if self.aim is not None:
            self.aim.close()
        self.aim = None
