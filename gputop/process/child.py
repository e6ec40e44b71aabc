"""Starts the observed command as the user behind sudo, and only after its probes are attached."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputop.process.child_terminal import ChildTerminal, ours

_GO = b"g"
_POLL_S = 0.02
_LONGEST_NAME = 60
AUTOGROUP = Path("/proc/self/autogroup")
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # exit statuses of a shell


class ChildError(Exception):
    """The command could not be started; ``status`` is a shell's exit status for this."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Identity:
    """The user that the command runs as."""

    uid: int
    gid: int
    name: str
    home: str


def behind_sudo() -> Identity | None:
    """Return the user who called sudo, or None without sudo."""
    if os.geteuid() != 0:
        return None
    try:
        uid, gid = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
        entry = pwd.getpwuid(uid)
    except (KeyError, ValueError):
        return None
    return Identity(uid, gid, entry.pw_name, entry.pw_dir) if uid else None


class Child:
    """A command that waits for ``release`` before it is executed.

    It is forked early, while gputop is small and has one thread, so its pid is known and observed before its
    first instruction. It leads its own session and has no access to gputop's terminal: it may run as another
    user, and could type into that terminal.

    Args:
        command: Program and arguments.
        environment: Its environment.
        identity: The user it runs as; None: gputop's.
        output: Descriptor for its standard output and error, with /dev/null as standard input (for a
            pager); None: gputop's own. Streams that are a terminal become one of its own, relayed to ours.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        identity: Identity | None = None,
        output: int | None = None,
    ) -> None:
        self.command = list(command)
        self._status: int | None = None
        self._raw, self._refused = 0, False
        self._started = self._ended = time.monotonic()
        self.terminal: ChildTerminal | None = None  # its own terminal, or None
        deaf = output is not None or _in_pipeline()
        terminals = ours((output,) if output is not None else (1, 2) if deaf else (1, 2, 0))
        if terminals:  # first: the relay must not inherit descriptors opened below
            owner = identity.uid if identity else None
            self.terminal = ChildTerminal(reads=0 in terminals, shown=terminals[0], owner=owner)
        gate_read, self._gate = os.pipe()
        self._report, report_write = os.pipe()
        self.pid = os.fork()  # its number, and that of its session and process group
        if self.pid == 0:
            os.close(self._gate)
            os.close(self._report)
            streams = _Streams(deaf, output, self.terminal, terminals if output is None else [1, 2])
            _become(self.command, dict(environment), identity, streams, gate_read, report_write)
        if self.terminal is not None:
            self.terminal.started()
        os.close(gate_read)
        os.close(report_write)

    def release(self) -> None:
        """Execute the command.

        Raises:
            ChildError: It cannot be executed.
        """
        self._started = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            os.write(self._gate, _GO)
        os.close(self._gate)
        with os.fdopen(self._report, "rb") as report:
            failure = report.read()
        if failure:
            self._refused = True
            self.wait()
            status, _, reason = failure.decode(errors="replace").partition(" ")
            raise ChildError(f"cannot run {self.command[0]}: {reason}", int(status))

    def discard(self) -> None:
        """End the command before its release."""
        with contextlib.suppress(OSError):
            os.close(self._gate)
        self.wait()

    def poll(self) -> int | None:
        """Return the exit status if it has ended (128 + number for a signal), else None."""
        if self._status is None:
            self._reap(os.WNOHANG)
        return self._status

    @property
    def name(self) -> str:
        """The first words of the command, for messages."""
        words = " ".join(self.command[:3])
        return words if len(words) <= _LONGEST_NAME else f"{words[:_LONGEST_NAME]} …"

    def ends_within(self, seconds: float) -> bool:
        """True if it has ended, or does so within that time."""
        until = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(_POLL_S)
        return self.poll() is not None

    def outcome(self) -> str:
        """Return how it ended and after how long; "" while it runs, or if it could not be executed."""
        if self.poll() is None or self._refused:
            return ""
        return f"{self.name} {end_text(self._raw)} after {self._ended - self._started:.1f} s"

    def wait(self) -> int:
        """Wait for its end and return the exit status."""
        while self._status is None:
            self._reap(0)
        return self._status

    def _reap(self, options: int) -> None:
        try:
            pid, raw = os.waitpid(self.pid, options)
        except ChildProcessError:
            self._status = 1  # another process reaped it: the status is unknown
            return
        if pid:
            self._raw, self._ended = raw, time.monotonic()
            code = os.waitstatus_to_exitcode(raw)
            self._status = code if code >= 0 else 128 - code
        if self._status is not None and self.terminal is not None:
            self.terminal.close()

    def interrupt(self) -> None:
        """Send SIGINT to its process group, as a terminal does for a foreground job."""
        if self._status is None:  # not waited for yet: the pid is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGINT)

    def pass_on(self, number: int) -> None:
        """Send it the signal that ended gputop, which is in another process group."""
        if number == signal.SIGINT:
            self.interrupt()
        else:
            self.send(signal.Signals(number))

    def send(self, number: signal.Signals) -> None:
        """Send a signal if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def end_text(raw: int) -> str:
    """Return how a process ended, from ``waitpid``'s status, as the end of a sentence."""
    if not os.WIFSIGNALED(raw):
        return f"ended with status {os.WEXITSTATUS(raw)}"
    number = os.WTERMSIG(raw)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"was killed by {name}"


@dataclass(frozen=True, slots=True)
class _Streams:
    """The command's standard streams."""

    deaf: bool  # its standard input is /dev/null
    output: int | None
    terminal: ChildTerminal | None
    relayed: list[int]  # those that are its own terminal, where it has one

    def apply(self) -> None:
        """In the child: lead a session, with its own controlling terminal or none."""
        _lead_session()
        if self.deaf:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if self.output is not None:
            os.dup2(self.output, 1)
            os.dup2(self.output, 2)
        if self.terminal is not None:
            self.terminal.adopt(self.relayed)
        for descriptor in ours(map(int, os.listdir("/proc/self/fd"))):
            if descriptor > 2 and os.get_inheritable(descriptor):  # another one that we were started with
                os.close(descriptor)


def _in_pipeline() -> bool:
    """True if a pager or the like reads our output, and thus the keys, which a relay would consume."""
    try:
        return os.isatty(0) and stat.S_ISFIFO(os.fstat(1).st_mode)
    except OSError:
        return False


def _lead_session() -> None:
    """Lead a new session, without gputop's priority where the kernel shares CPU by session (autogroup).

    A niceness above 0 is kept. A raised priority is not: of two such sessions, a busy one starves a mostly
    sleeping one for seconds.
    """
    nice = 0
    with contextlib.suppress(OSError, ValueError):
        words = AUTOGROUP.read_text().split()  # none: the first process's session, as containers have it
        nice = int(words[-1]) if words else 0
    os.setsid()
    if nice > 0:
        with contextlib.suppress(OSError):
            AUTOGROUP.write_text(str(nice))


def _become(
    command: list[str],
    environment: dict[str, str],
    identity: Identity | None,
    streams: _Streams,
    gate: int,
    report: int,
) -> None:
    """In the child: wait for the gate, change the user, execute. Never returns."""
    status, reason = NOT_EXECUTABLE, ""
    try:
        streams.apply()
        if os.read(gate, 1) != _GO:
            os._exit(0)  # gputop could not start: the command never ran
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if identity is not None:
            os.initgroups(identity.name, identity.gid)
            os.setgid(identity.gid)
            os.setuid(identity.uid)
            environment |= {"HOME": identity.home, "USER": identity.name, "LOGNAME": identity.name}
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        status, reason = NOT_FOUND, "no such program"
    except OSError as error:
        reason = error.strerror or str(error)
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
    with contextlib.suppress(OSError):
        os.write(report, f"{status} {reason}".encode())
    os._exit(status)


def interpreter_prefixes(command: Sequence[str], environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the prefixes of the Python installations that the command may run in, to find CUDA wheels."""
    found = [Path(sys.prefix)]
    if environment.get("VIRTUAL_ENV"):
        found.append(Path(environment["VIRTUAL_ENV"]))
    folders = [Path(command[0]).parent] if command and "/" in command[0] else []
    folders += [Path(folder) for folder in environment.get("PATH", "").split(":") if folder.startswith("/")]
    for folder in folders:
        # a virtual environment's python is a link: its own folder counts, and where it leads
        # os.path: a folder that is closed to us has none, where Path.exists raises before Python 3.12
        if any(os.path.exists(folder / name) for name in ("python3", "python")):
            found.append(folder.parent)
            with contextlib.suppress(OSError, RuntimeError):
                found.append((folder / "python3").resolve().parent.parent)
    return tuple(dict.fromkeys(found))
