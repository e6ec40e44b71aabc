"""Relays between our terminal and the observed command's, in a process of its own.

Ours is raw meanwhile, and the command's terminal interprets the keys. Interrupt and stop keys affect gputop
as well, as in a pipeline. Ends when no process has the command's terminal open any more.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
import time
from contextlib import suppress
from typing import Any, NoReturn

from probes.proc.procfs import process_state
from probes.process.privileges import SIGNALS, confine_thread

_CHUNK = 1 << 16
_LOOK_MS = 200  # interval of checking size, modes and whether we are in the foreground
_STOPPING_S = 0.5
_TIOCGSID = 0x5429  # which session a terminal controls
_INPUT, _OUTPUT, _LOCAL, _KEYS = 0, 1, 3, 6  # places in what tcgetattr returns
_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTOU, signal.SIGTTIN)


def run(gputop: int, inner: int, shown: int, *, reads: bool, ended: int, done: int) -> NoReturn:
    """Relay until the command's terminal is closed; never returns.

    Args:
        gputop: Pid of the process that started the command.
        inner: The master of the command's terminal.
        shown: Our terminal.
        reads: Whether our standard input is relayed.
        ended: Pipe whose other end closes when gputop waits for the last output, or has gone.
        done: Pipe to close when our terminal is restored.
    """
    confine_thread(SIGNALS)  # what is relayed is the command's, and this process may be root's
    relay = _Relay(gputop, inner, shown, reads=reads, ended=ended, done=done)
    try:
        for number in _IGNORED:  # for gputop and the command; the relay ends after these
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTSTP, lambda *_: relay.stop())
        signal.signal(signal.SIGCONT, lambda *_: relay.resume())
        relay.follow()
    except OSError:  # nothing can be shown any more
        relay.hang_up()
    finally:
        relay.restore()
        os._exit(0)


class _Relay:
    def __init__(self, gputop: int, inner: int, shown: int, *, reads: bool, ended: int, done: int) -> None:
        self._gputop, self._inner, self._shown = gputop, inner, shown
        self._reads, self._ended, self._done = reads, ended, done
        self._before: list[Any] | None = None  # how our terminal was, while it is raw
        self._stopped = False
        self._size = b""
        self._typed = b""  # keys not yet accepted by the command's terminal
        os.set_blocking(inner, False)

    def follow(self) -> None:
        """Relay until no process has the other end open, or our terminal has gone."""
        while True:
            self._dress()
            self._resize()
            happened = self._wait()
            if happened.get(self._shown, 0) & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                self.hang_up()
                return
            if happened.get(self._inner, 0) & select.POLLOUT:
                self._pass_on()
            if self._inner in happened and not self._show():
                return
            if 0 in happened and self._before is not None:
                self._read()
            if self._ended in happened or os.getppid() != self._gputop:
                self._show_rest()
                self.restore()

    def restore(self) -> None:
        """Restore our terminal and stop reading it; gputop may go on."""
        self._reads = False
        self._undress()
        for descriptor in (self._ended, self._done):
            if descriptor >= 0:
                os.close(descriptor)
        self._ended = self._done = -1
        self._gputop = os.getppid()

    def hang_up(self) -> None:
        """Hang up the command's terminal, since ours has gone."""
        self._signal(signal.SIGHUP)
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """The job is being stopped: restore the terminal, and stop the command once gputop has stopped."""
        self._undress()
        self._stopped = True
        deadline = time.monotonic() + _STOPPING_S
        while process_state(self._gputop) != "T":
            if time.monotonic() > deadline:  # no shell would let it go on, so the kernel did not stop it
                self._stopped = False
                return
            time.sleep(0.005)
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._stopped = False
        self._signal(signal.SIGCONT)

    def _wait(self) -> dict[int, int]:
        poll = select.poll()
        poll.register(self._shown, 0)
        poll.register(self._inner, select.POLLIN | (select.POLLOUT if self._typed else 0))
        if self._ended >= 0:
            poll.register(self._ended, select.POLLIN)
        if self._before is not None and not self._typed:
            poll.register(0, select.POLLIN)
        return dict(poll.poll(_LOOK_MS))

    def _dress(self) -> None:
        """Make our terminal raw while in the foreground, with the output processing of the command's."""
        if not self._reads or self._stopped or not self._foreground():
            self._before = None  # the shell has it, in modes of its own
            return
        now = termios.tcgetattr(0)
        wanted = [*now[:_KEYS], list(now[_KEYS])]
        if self._before is None:
            self._before = now
            wanted[_INPUT] &= ~(
                termios.BRKINT | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXON
            )
            wanted[_LOCAL] &= ~(
                termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN
            )
            wanted[_KEYS][termios.VMIN], wanted[_KEYS][termios.VTIME] = 1, 0
        processed = termios.tcgetattr(self._inner)[_OUTPUT] & termios.OPOST
        wanted[_OUTPUT] = wanted[_OUTPUT] & ~termios.OPOST | processed
        if wanted != now:
            termios.tcsetattr(0, termios.TCSANOW, wanted)

    def _undress(self) -> None:
        before, self._before = self._before, None
        if before is not None and self._foreground():
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, before)

    @staticmethod
    def _foreground() -> bool:
        try:
            return os.tcgetpgrp(0) == os.getpgrp()
        except OSError:  # not our controlling terminal: then there is no background either
            return True

    def _resize(self) -> None:
        with suppress(OSError):
            size = fcntl.ioctl(self._shown, termios.TIOCGWINSZ, bytes(struct.calcsize("4H")))
            if size != self._size:
                fcntl.ioctl(self._inner, termios.TIOCSWINSZ, size)
                self._size = size

    def _show(self) -> bool:
        """Shows what was printed; False when no process can print any more."""
        try:
            text = os.read(self._inner, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._dress()  # the command may have changed its terminal just before
        while text:
            try:
                text = text[os.write(self._shown, text) :]
            except BlockingIOError:  # set by another process on this terminal
                select.select([], [self._shown], [])
        return True

    def _show_rest(self) -> None:
        while select.select([self._inner], [], [], 0)[0]:
            if not self._show():
                return

    def _read(self) -> None:
        try:
            keys = os.read(0, _CHUNK)
        except OSError:  # we have just lost the foreground, or the terminal has gone
            return
        self._reads = bool(keys)
        for key in keys:
            if not self._means_us(bytes([key])):
                self._typed += bytes([key])
        self._pass_on()

    def _pass_on(self) -> None:
        with suppress(BlockingIOError):
            self._typed = self._typed[os.write(self._inner, self._typed) :] if self._typed else b""

    def _means_us(self, key: bytes) -> bool:
        """True if a key is a signal to the job, which no shell within the command's terminal handles."""
        modes = termios.tcgetattr(self._inner)
        if not modes[_LOCAL] & termios.ISIG or not self._leads():
            return False
        if key == modes[_KEYS][termios.VINTR]:
            os.kill(self._gputop, signal.SIGINT)  # which passes it on to the command
            return True
        if key == modes[_KEYS][termios.VSUSP]:
            self._undress()
            os.killpg(os.getpgrp(), signal.SIGTSTP)
            return True
        return False

    def _leads(self) -> bool:
        session = struct.unpack("i", fcntl.ioctl(self._inner, _TIOCGSID, bytes(4)))[0]
        return bool(os.tcgetpgrp(self._inner) == session)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(OSError):
            os.killpg(os.tcgetpgrp(self._inner), number)
