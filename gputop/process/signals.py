"""Sends a signal to an observed process, and never to another that has reused its pid."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass

from gputop.format import escape_text
from probes.proc.procfs import boot_offset_ns, process_state, start_of
from probes.process.realtime import readable

# Signals to choose from, the gentlest first, with their effect.
OFFERED: tuple[tuple[signal.Signals, str], ...] = (
    (signal.SIGTERM, "terminate"),
    (signal.SIGINT, "interrupt, as ctrl+c does"),
    (signal.SIGHUP, "hang up; some programs reload their settings"),
    (signal.SIGSTOP, "stop until SIGCONT"),
    (signal.SIGCONT, "continue after SIGSTOP"),
    (signal.SIGUSR1, "program-defined; terminates by default"),
    (signal.SIGKILL, "kill at once, without cleanup"),
)

_SLACK_NS = 20_000_000  # procfs counts in ticks of 10 ms, and two clocks are read one after the other


@dataclass(frozen=True, slots=True)
class SignalTarget:
    """An observed process."""

    pid: int
    name: str  # the kernel's name for it
    user: str
    seen_ns: int  # first observation, CLOCK_MONOTONIC: a process that started later has reused the pid


class SignalError(Exception):
    """The signal was not sent; the text is the reason."""


class Aim:
    """A hold on one process, which excludes a reused pid.

    Raises:
        SignalError: The process has ended, its pid has been reused, or permission is missing.
    """

    def __init__(self, target: SignalTarget) -> None:
        self.target = target
        if target.pid == os.getpid():
            raise SignalError("that is gputop itself: q quits")
        self._descriptor, self._sent = -1, ""
        try:
            # hold the process first, then check its identity
            self._descriptor = os.pidfd_open(target.pid)
            start = start_of(target.pid)
            if start is None or start[1] - boot_offset_ns() > target.seen_ns + _SLACK_NS:
                self.close()
                raise SignalError(f"{target.pid} has ended, or its number belongs to another process by now")
            signal.pidfd_send_signal(self._descriptor, 0)
        except OSError as error:
            self.close()
            raise SignalError(_reason(target, error)) from error

    def send(self, number: signal.Signals) -> str:
        """Send a signal and return the result, in words.

        Args:
            number: One of ``OFFERED``.

        Raises:
            SignalError: It was not sent.
        """
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except OSError as error:
            raise SignalError(_reason(self.target, error)) from error
        self._sent = number.name
        return f"{number.name} was sent to {self.target.pid} {escape_text(self.target.name)}"

    def outcome(self) -> str:
        """Return the state of the process since the signal, in words."""
        who = f"{self.target.pid} {escape_text(self.target.name)}"
        if self._descriptor < 0 or readable(self._descriptor, 0):
            return f"{self._sent}: {who} has ended"
        stopped = process_state(self.target.pid) == "T"
        return f"{self._sent}: {who} {'is stopped; SIGCONT lets it go on' if stopped else 'still runs'}"

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _reason(target: SignalTarget, error: OSError) -> str:
    if error.errno == errno.ESRCH:
        return f"{target.pid} has ended already"
    if error.errno == errno.EPERM:
        return f"{target.pid} belongs to {target.user}: only that user and root may send it signals"
    return f"no signal can be sent to {target.pid}: {error.strerror}"
