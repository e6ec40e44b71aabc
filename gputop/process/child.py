"""Starts the command that is to be watched, as the user behind sudo, and not before it is watched."""

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
    """The command could not be started; ``status`` is what a shell would exit with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom the command runs as."""

    uid: int
    gid: int
    name: str
    home: str


def behind_sudo() -> Identity | None:
    """The user who called sudo, or None without sudo."""
    if os.geteuid() != 0:
        return None
    try:
        uid, gid = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
        entry = pwd.getpwuid(uid)
    except (KeyError, ValueError):
        return None
    return Identity(uid, gid, entry.pw_name, entry.pw_dir) if uid else None


class Child:
    """A command that waits for ``release`` before it becomes itself.

    It is forked early, while gputop is small and has one thread; its number is known and watched before
    its first instruction. It leads a session of its own and has nothing of our terminal: it may be another
    user's, and could type into ours.

    Args:
        command: Program and arguments.
        environment: Its environment.
        identity: Whom it runs as; None: as gputop.
        output: Descriptor for its standard output and error; None: it has ours. With an output its standard
            input is /dev/null, as it is where our output goes to a pager and our input is the terminal. For
            those that are a terminal it gets a terminal of its own, relayed to it.
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
        if terminals:  # first of all: what is opened below is none of the relay's business
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
        """Lets the command start.

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
        """Ends the command before it was released."""
        with contextlib.suppress(OSError):
            os.close(self._gate)
        self.wait()

    def poll(self) -> int | None:
        """Exit status if it has ended: 128 + number for a signal."""
        if self._status is None:
            self._reap(os.WNOHANG)
        return self._status

    @property
    def name(self) -> str:
        """Its first words, for sentences."""
        words = " ".join(self.command[:3])
        return words if len(words) <= _LONGEST_NAME else f"{words[:_LONGEST_NAME]} …"

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so within that time."""
        until = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(_POLL_S)
        return self.poll() is not None

    def outcome(self) -> str:
        """How it ended, and after how long; "" while it runs, and where it could not be executed."""
        if self.poll() is None or self._refused:
            return ""
        return f"{self.name} {end_text(self._raw)} after {self._ended - self._started:.1f} s"

    def wait(self) -> int:
        """Waits for its end; returns the exit status."""
        while self._status is None:
            self._reap(0)
        return self._status

    def _reap(self, options: int) -> None:
        try:
            pid, raw = os.waitpid(self.pid, options)
        except ChildProcessError:
            self._status = 1  # another process reaped it: the status is not known
            return
        if pid:
            self._raw, self._ended = raw, time.monotonic()
            code = os.waitstatus_to_exitcode(raw)
            self._status = code if code >= 0 else 128 - code
        if self._status is not None and self.terminal is not None:
            self.terminal.close()

    def interrupt(self) -> None:
        """Sends SIGINT to it and the rest of its process group, as our terminal did if it were in ours."""
        if self._status is None:  # not waited for yet: the number is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGINT)

    def pass_on(self, number: int) -> None:
        """Sends it what ended gputop: it is in no process group of ours, so it was not reported."""
        if number == signal.SIGINT:
            self.interrupt()
        else:
            self.send(signal.Signals(number))

    def send(self, number: signal.Signals) -> None:
        """Sends a signal if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def end_text(raw: int) -> str:
    """How a process ended, by what ``waitpid`` tells of it, as the end of a sentence."""
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
    """Where the command's standard streams go."""

    deaf: bool  # its standard input is /dev/null
    output: int | None
    terminal: ChildTerminal | None
    relayed: list[int]  # those that are its own terminal, where it has one

    def apply(self) -> None:
        """In the child: a session without a controlling terminal, or with its own."""
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
    """Whether a pager or the like reads our output: what is typed is for that, and a relay would take it."""
    try:
        return os.isatty(0) and stat.S_ISFIFO(os.fstat(1).st_mode)
    except OSError:
        return False


def _lead_session() -> None:
    """Leads a new session, which goes before no others where the kernel shares out CPU by session.

    It is as nice as ours is. That ours goes before others, so that gputop is in time, is not passed on: of
    two such sessions the one that computes keeps the one that mostly sleeps waiting, for seconds.
    """
    nice = 0
    with contextlib.suppress(OSError, ValueError):
        words = AUTOGROUP.read_text().split()
        nice = (
            int(words[-1]) if words else 0
        )  # empty: the session of the first process, as containers have it
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
    """In the child: waits for the gate, takes the identity, executes. Never returns."""
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
    """Prefixes of the Python installations that the command may run in, for the wheels in them."""
    found = [Path(sys.prefix)]
    if environment.get("VIRTUAL_ENV"):
        found.append(Path(environment["VIRTUAL_ENV"]))
    for folder in (Path(command[0]).parent if command and "/" in command[0] else None, *_path(environment)):
        if folder is None:
            continue
        # a virtual environment's python is a link: its own folder counts, and where it leads
        # os.path: a folder that is closed to us has none, where Path.exists raises before Python 3.12
        if any(os.path.exists(folder / name) for name in ("python3", "python")):
            found += [folder.parent, *_real_prefix(folder)]
    return tuple(dict.fromkeys(found))


def _real_prefix(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError, RuntimeError):
        return [(folder / "python3").resolve().parent.parent]
    return []


def _path(environment: Mapping[str, str]) -> list[Path]:
    return [Path(folder) for folder in environment.get("PATH", "").split(":") if folder.startswith("/")]
