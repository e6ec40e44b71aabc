"""A child process that reads files of others, and the requests to it."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgpack  # type: ignore[import-untyped, unused-ignore]

from probes.files.abandoned_files import AbandonedFiles, Key
from probes.files.reader_protocol import NUMBER_BYTES, Patience, found_in, let_go, received, unpacked
from probes.files.reader_protocol import EndedError as EndedError
from probes.files.reader_protocol import UnreadableError as UnreadableError
from probes.process import privileges

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def at_work(pid: int) -> tuple[str, float]:
    """(state in /proc, used CPU seconds) of a process; X and none where it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), (int(fields[11]) + int(fields[12])) * _TICK_S
    except (OSError, IndexError, ValueError):
        return "X", 0.0


# Requests to a child process about files of others: it opens and reads them, and is given up when too slow.

BUDGET_S = 2.0  # of one question, as Patience counts them
_START_S = 10.0  # an interpreter starts, on a busy machine
IDLE_S, MOST_IDLE_S = 5.0, 20.0  # without a question, after which the child ends
_MOST_KEPT = 4096
_MOST_AHEAD = 256  # answers not requested yet
_MOST_ANSWER = 1 << 18  # bytes of a later answer: 32 names of 4 KB
TOO_SLOW = f"it could not be read within {BUDGET_S:g} s"
TOO_MUCH = f"it takes more than {BUDGET_S:g} s of computing to read it"
NO_END = "the process that read it did not end"
UNKNOWN = -1  # owner of a file
_PACKAGES = Path(__file__).resolve().parents[2]


class Program(Protocol):
    """The module ``reader_child``."""

    __file__: str | None

    def detach(self, channel: int) -> None:
        """Releases everything of the parent's, in a fork."""

    def answer_all(self, questions: socket.socket, budget_s: float) -> None:
        """Answers until the last request."""


class Reader:
    """The child that starts a process for each request. For any thread.

    It neither reads nor opens anything itself, so it never has to be waited for.

    The first child is a fork, which keeps a copy of each page that this process changes, up to 40 MB. It ends
    once nothing more is to be read at the start; the next question starts an interpreter, of 18 MB. That ends
    as well, after twice the time where it was missed soon.

    Attributes:
        problems: Sentences about abandoned files, to be reported.
        places: Places of requested files: path, device and inode, by a list of mappings.
        owners: Owners of files, by device and inode.
        given_up: Abandoned files.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.problems: deque[str] = deque(maxlen=64)
        self.places: dict[Key, tuple[Path, Key]] = {}
        self.owners: dict[Key, int] = {}
        self.abandoned = AbandonedFiles(self.problems.append)
        self._ahead: dict[tuple[str, Key, str], tuple[Any, int]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._child: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._ready = False
        self._pid = -1
        self._sent_s = time.monotonic()
        self._idle_s = IDLE_S
        self._over = threading.Event()
        self._fork()

    def end_idle(self) -> None:
        """Starts a thread that ends the child when it is idle; it has the rights of the calling thread."""
        if os.geteuid() == 0 or not privileges.held():  # a new interpreter loses capabilities of its file
            threading.Thread(target=self._end_idle, name="gputop-reader", daemon=True).start()

    def _fork(self) -> None:
        """Starts the child: by a fork, since an interpreter of its own needs as long as all else."""
        self._channel, theirs = self._channels()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._program.detach(theirs.fileno())
                self._program.answer_all(theirs, BUDGET_S)
            finally:
                os._exit(0)
        theirs.close()

    def _end_idle(self) -> None:
        left = self._idle_s
        while not self._over.wait(left):
            with self._lock:
                left = self._sent_s + self._idle_s - time.monotonic()
                if left <= 0:
                    self._end()
                    left = self._idle_s

    def _spawn(self) -> None:
        """Another one: by now there are threads, which a fork would tear out of their work."""
        if time.monotonic() - self._sent_s < MOST_IDLE_S:
            self._idle_s = min(2 * self._idle_s, MOST_IDLE_S)
        self._channel, theirs = self._channels()
        with theirs:
            self._child = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    str(self._program.__file__),
                    str(_PACKAGES),
                    str(theirs.fileno()),
                    str(BUDGET_S),
                ],
                executable="/proc/self/exe",  # without root's rights the path to this Python may be closed
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"OPENBLAS_NUM_THREADS": "1"},  # threads do not survive a fork
                cwd="/",
                start_new_session=True,  # the terminal's signals mean gputop, not it
            )
        self._pid = self._child.pid

    def _channels(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_START_S)
        self._ready = False
        return ours, theirs

    @property
    def pid(self) -> int:
        return self._pid

    def request(
        self, job: str, what: Any, key: Key, shown: str, descriptor: int = -1, owner: int | None = None
    ) -> tuple[Any, int]:
        """The answer to a request, and a descriptor that came with it, or -1.

        Args:
            job: One of those in ``reader_child.py``, behind ``open `` where the file is to be opened.
            what: Plain data that belong to it.
            key: The file.
            shown: The file's path, for sentences.
            descriptor: The file, where it is open.
            owner: Who is to blame for it, where its owner is not known.

        Raises:
            UnreadableError: It is no such file.
            OSError: The error of reading it; ETIMEDOUT where it did not come to an end, or had not before.
        """
        if (ready := self._ahead.pop((job, key, shown), None)) is not None:
            return ready
        whose = self.owners.get(key, UNKNOWN if owner is None else owner)
        for _ in range(2):  # the answering process may have been killed: it is not the file's fault yet
            answer, found = self._answered(job, what, key, shown, descriptor, whose)
            if answer is not None:
                break
        else:
            raise self.abandon(key, whose, shown, NO_END)
        try:
            answer_data = found_in(answer, shown)
        except BaseException:
            let_go(found)
            raise
        if job != "open ":
            self.abandoned.answered(key, whose)
        return answer_data, found

    def _answered(
        self, job: str, what: Any, key: Key, shown: str, descriptor: int, owner: int
    ) -> tuple[list[Any] | None, int]:
        """A process's answer, None without one; a descriptor that came with it. Raises OSError."""
        channel = self._posed(job, what, key, shown, descriptor, owner, socket.SOCK_STREAM)
        found = -1
        with channel:
            if (worker := self._begun(channel)) is None:
                return None, -1
            try:
                data, found = received(channel, Patience(BUDGET_S))
                return unpacked(data), found
            except TimeoutError:
                if (error := self.late(worker, key, owner, shown)) is not None:
                    raise error from None
                return None, -1
            except ValueError:
                let_go(found)
                return None, -1

    def _begun(self, channel: socket.socket) -> int | None:
        """The process that answers; None where there is none, for which the file cannot be blamed."""
        try:
            Patience(BUDGET_S).wait(channel)
            number = channel.recv(NUMBER_BYTES)
        except TimeoutError:
            with self._lock:  # it is stopped, or hangs itself: the next question has another one
                self._end()
            return None
        except ConnectionResetError:
            return None
        return int.from_bytes(number, "little") or None

    def late(self, worker: int, key: Key, owner: int, shown: str) -> OSError | None:
        """The error of a process without an answer in time; None where the file has no part in it."""
        state, cpu_s = at_work(worker)
        if cpu_s >= BUDGET_S / 2:
            return self.abandon(key, owner, shown, TOO_MUCH)
        if state in "TtZX":  # it was stopped or ended
            return None
        # else others have the processors
        return self.abandon(key, owner, shown, TOO_SLOW, hangs=state != "R")

    def place(
        self, path: str, identity: Key, job: str = "", what: Any = None, shown: str = ""
    ) -> tuple[tuple[int, int], int, Any]:
        """(bytes, owner) of a file, its place: a descriptor that cannot be read, and the answer of a job.

        Raises:
            UnreadableError, OSError: As ``request``.
        """
        (facts, answer), descriptor = self.request(
            f"open {job}", [path, list(identity), what], identity, shown or path
        )
        try:
            size, owner = facts
            if descriptor < 0 or not isinstance(size, int) or not isinstance(owner, int):
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), path)
            self.owners[identity] = owner
        except (OSError, TypeError, ValueError):
            let_go(descriptor)
            raise
        return (size, owner), descriptor, answer

    def converse(self, job: str, what: Any, key: Key, shown: str, descriptor: int) -> Talk:
        """A process that goes on answering about one file, until it is closed. Raises as ``request``."""
        owner = self.owners.get(key, UNKNOWN)
        for _ in range(2):
            channel = self._posed(job, what, key, shown, descriptor, owner, socket.SOCK_SEQPACKET)
            if (worker := self._begun(channel)) is not None:
                return Talk(self, channel, worker, key, owner, shown)
            channel.close()
        raise self.abandon(key, owner, shown, NO_END)

    def look_ahead(self, path: str, job: str, what: Any, key: Key, shown: str) -> None:
        """Opens a file and requests its facts ahead: the next request has the answers."""
        if ("open ", key, path) in self._ahead:
            return
        if len(self._ahead) >= _MOST_AHEAD:
            self._forget_ahead()
        with suppress(OSError, UnreadableError, TypeError, ValueError):  # passed to the next request
            (facts, answer), descriptor = self.request(f"open {job}", [path, list(key), what], key, shown)
            self.owners[key] = int(facts[1])
            self._ahead["open ", key, path] = [facts, None], descriptor
            self._ahead[job, key, shown] = answer, -1

    def _posed(
        self, job: str, what: Any, key: Key, shown: str, descriptor: int, owner: int, kind: socket.SocketKind
    ) -> socket.socket:
        """Sends a request; returns the channel of its answer. Raises OSError."""
        if (before := self.abandoned.refusal(key, owner, shown)) is not None:
            raise OSError(errno.ETIMEDOUT, before, shown)
        for kept in (self.places, self.owners):
            if len(kept) >= _MOST_KEPT:
                kept.clear()
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.settimeout(BUDGET_S)  # of sending: a repeated request may not be read any more
        try:
            with theirs:
                sent = [theirs.fileno(), *([descriptor] if descriptor >= 0 else [])]
                self._send(msgpack.packb([job, what]), sent)
        except BaseException:
            ours.close()
            raise
        return ours

    def _send(self, data: bytes, descriptors: list[int]) -> None:
        """Hands a question over, to another child where the last has ended."""
        with self._lock:
            for last in (False, True):
                if self._closed:
                    raise OSError(errno.ESHUTDOWN, "gputop ends")
                try:
                    assert self._channel is not None
                    if not self._ready and self._channel.recv(1) != b"r":
                        raise ConnectionResetError
                    self._ready = True
                    socket.send_fds(self._channel, [data], descriptors)
                    self._sent_s = time.monotonic()
                    return
                except OSError:
                    if last:
                        raise
                    self._end()
                    self._spawn()

    def abandon(self, key: Key, owner: int, shown: str, why: str, *, hangs: bool = False) -> OSError:
        """Leaves a file alone for a while; returns the error. ``hangs``: its file system did not answer."""
        self.abandoned.add(key, owner, shown, why, hangs=hangs)
        return OSError(errno.ETIMEDOUT, why, shown)

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._pid > 0:  # not waited for yet: the number is still its own
            with suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
        self._pid = -1

    def close(self) -> None:
        """Ends the child. A process that hangs in a file system stays until that answers."""
        with self._lock:
            self._closed = True
            self._end()
        self._over.set()
        self._forget_ahead()

    def _forget_ahead(self) -> None:
        for question in list(self._ahead):
            _answer, descriptor = self._ahead.pop(question, (None, -1))
            let_go(descriptor)


class Talk:
    """A process that has read a file and answers about it, one question after the other, by one thread.

    Raises:
        UnreadableError, OSError: As ``Reader.request``.
    """

    def __init__(
        self, reader: Reader, channel: socket.socket, worker: int, key: Key, owner: int, shown: str
    ) -> None:
        self._reader, self._channel, self._worker = reader, channel, worker
        self._key, self._owner, self._shown = key, owner, shown
        self._answered = 0
        try:
            self.first = self._heard()
        except BaseException:
            channel.close()
            raise

    def request(self, question: Any) -> Any:
        """The answer to one more request.

        Raises:
            EndedError: The process had ended before, maybe by its limit of CPU time: start another one.
            UnreadableError, OSError: As ``Reader.request``.
        """
        try:
            self._channel.send(msgpack.packb(question))
        except OSError as error:
            raise EndedError from error
        return self._heard()

    def _heard(self) -> Any:
        try:
            Patience(BUDGET_S).wait(self._channel)
            data = self._channel.recv(_MOST_ANSWER)
            if not data and self._answered:
                raise EndedError
            answer = unpacked(data)
        except TimeoutError:
            late = self._reader.late(self._worker, self._key, self._owner, self._shown)
            raise late or EndedError() from None
        except ConnectionResetError:
            raise EndedError from None
        except ValueError:
            raise self._reader.abandon(self._key, self._owner, self._shown, NO_END) from None
        self._answered += 1
        return found_in(answer, self._shown)

    def close(self) -> None:
        self._channel.close()


_reader: Reader | None = None


def start(program: Program) -> Reader:
    """From now on files of others are read by a child of this process, until ``stop``. Raises OSError.

    To be called before there are threads: the child is forked.
    """
    global _reader
    stop()
    _reader = Reader(program)
    return _reader


def end_idle() -> None:
    """From now on an idle child ends; to be called after rights are given up."""
    if _reader is not None:
        _reader.end_idle()


def stop() -> None:
    """From now on this process reads them itself."""
    global _reader
    before, _reader = _reader, None
    if before is not None:
        before.close()


def current() -> Reader | None:
    """The reader to use; None where this process reads by itself."""
    return _reader
