"""An observation: the command to start, the source to open, the file to write."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputop.commands.command import VERSION
from gputop.commands.observer import as_root, own_command, start_observer
from gputop.engine.malloc_tuning import share_freed
from gputop.engine.tally import FileSums
from gputop.errors import CommandError, GputopError
from gputop.files.output_files import clear_segments, refuse_existing
from gputop.files.redaction import Redactor, redactor_of_here
from gputop.process.child import (
    NOT_EXECUTABLE,
    NOT_FOUND,
    Child,
    ChildError,
    behind_sudo,
    interpreter_prefixes,
)
from gputop.process.interrupts import Interrupted, answering, finishing, heeding
from gputop.process.targets import check_pids
from gputop.serve.clients.listening import listen
from probes.code import reader_child
from probes.ebpf.loader import ProbeError
from probes.files import file_reader
from probes.inside.annotation_socket import VARIABLE, WELL_KNOWN, Bound, own_socket
from probes.observe.plan import POLL_S, LivePlan
from probes.proc.secrets import masked
from probes.process import privileges
from probes.source import Item, Observer, Source
from replay.coding.file_format import SessionError
from replay.segments import SegmentLimits, SegmentWriter
from replay.writer import SessionWriter

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class ObservedRun:
    """A started source, its command (waiting to be released) and its file."""

    source: Observer
    reason: str  # why there is no eBPF, "" if there is
    child: Child | None
    writer: SessionWriter | None
    header: dict[str, Any]  # of files and of the history
    owner: tuple[int, int] | None  # user and group of files, behind sudo
    segments: SegmentWriter | None = None  # in place of ``writer``
    redactor: Redactor | None = None

    @property
    def output(self) -> SessionWriter | SegmentWriter | None:
        """The writer, of one file or of segments."""
        return self.segments or self.writer

    def release(self) -> None:
        """Wait until the source is ready, then start the command, if any.

        Raises:
            CommandError: It cannot be executed.
        """
        try:
            self._start()
        except CommandError:
            self.source.abandon()
            if self.output is not None:
                self.output.discard()
            raise

    def release_meanwhile(self, failed: Callable[[CommandError], None]) -> threading.Thread:
        """Like ``release``, in a thread, while the caller reads the source."""

        def release() -> None:
            try:
                self._start()
            except CommandError as error:
                failed(error)

        thread = threading.Thread(target=release, name="gputop-release", daemon=True)
        thread.start()
        return thread

    def items(self) -> Iterator[Item]:
        """Yield the source's items.

        Raises:
            CommandError: The source failed.
        """
        try:
            yield from self.source.items()
        except ProbeError as error:
            raise CommandError(str(error)) from error

    def over(self, *, watched: bool = False) -> bool:
        """True if the command has ended, or with ``watched`` all processes have."""
        ended = self.child is not None and self.child.poll() is not None
        return ended or (watched and not self.source.alive)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Pass signals that end gputop on to the command, which has a session of its own."""
        with heeding(self._end):
            yield

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Like ``interrupting``, but only the source ends, so that files are complete."""
        with finishing(self._end):
            yield

    @contextmanager
    def answering(self, numbers: Collection[int] | None = None) -> Iterator[list[int]]:
        """Like ``ending``; yields the list of signals that came, to report a partial result."""
        with answering(self._end, numbers) as came:
            yield came

    def _end(self, number: int) -> None:
        if self.child is not None:
            self.child.pass_on(number)
        self.source.close()

    def _start(self) -> None:
        self.source.ready()
        if self.child is None:
            return
        try:
            self.child.release()
        except ChildError as error:
            raise CommandError(str(error), error.status) from error


def check_command(command: list[str], environment: Mapping[str, str]) -> None:
    """Raise CommandError for a program that does not exist, before an older recording is replaced."""
    if not command or shutil.which(command[0], path=environment.get("PATH")):
        return
    found = shutil.which(command[0], mode=os.F_OK, path=environment.get("PATH"))
    if found is None:
        raise CommandError(f"cannot run {command[0]}: no such program", NOT_FOUND)
    raise CommandError(f"cannot run {command[0]}: {found} is not executable", NOT_EXECUTABLE)


@contextmanager
def closing_after(source: Source, seconds: float | None) -> Iterator[None]:
    """Close the source after ``seconds``, unless the block ends before; None: never."""
    timer = threading.Timer(seconds, source.close) if seconds else None
    try:
        if timer is not None:
            timer.daemon = True
            timer.start()
        yield
    finally:
        if timer is not None:
            timer.cancel()


def interrupted_after(seconds: float) -> str:
    """Return the note of a result that an interrupt has shortened."""
    return f"interrupted: this covers the {seconds:.1f} s observed until then"


def _annotations(
    options: argparse.Namespace, environment: dict[str, str], path: str
) -> tuple[Bound | None, dict[str, str]]:
    """Return the socket for annotations, and an environment in which the command finds it."""
    try:
        if options.command:
            own, address = own_socket()
            return own, {**environment, VARIABLE: address}
        if os.geteuid() == 0:
            shared = listen(path, socket.SOCK_DGRAM)
            return Bound(shared.socket, shared.close), environment
    except OSError as error:  # another gputop has the socket: its recordings have the ranges
        _LOG.info("no annotations are received: %s", error)
    return None, environment


def open_session(
    options: argparse.Namespace,
    *,
    record_to: str | None,
    output: int | None,
    rate_hz: float,
    lines_later: bool = False,
    chooses: bool = False,
    keeps: bool = False,
    poll_s: float = POLL_S,
    annotate_at: str = WELL_KNOWN,
    limits: SegmentLimits | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> ObservedRun:
    """Fork the command, load and attach the probes, open the file, in this order.

    Args:
        options: The command's options.
        record_to: The file, or with ``limits`` the folder of segments; None: not recorded.
        output: Descriptor for the command's standard output; None: gputop's own.
        rate_hz: Frames per second.
        lines_later: Load the line finder in the background; ``release`` waits for it.
        chooses: The user may later record to any file and send signals.
        keeps: A daemon, which writes files by itself and does nothing else.
        poll_s: Interval of reading the ring of events.
        annotate_at: The socket where any program may name ranges; a command has its own.
        limits: When a segment ends.
        meanwhile: Runs in a thread while the probes are compiled, which needs no Python.

    Raises:
        CommandError: A step failed; nothing is left behind, the command has not run.
    """
    share_freed()  # before there are threads
    check_pids(options.pid, as_root("{}"))
    check_command(options.command, os.environ)
    if record_to:
        refuse_existing(record_to, force=options.force)
    environment, nvml_library = dict(os.environ), None
    if options.simgpu:
        from gputop.simgpu import library_build

        environment, nvml_library = library_build.environment(environment), library_build.nvml_path()
    library = None
    if options.inside:
        from gputop.inside import injected

        environment, library = injected.environment(environment)
    annotations, environment = _annotations(options, environment, annotate_at)
    user = behind_sudo()
    also_needs = privileges.SIGNALS if options.command or chooses else frozenset()
    if record_to or chooses or keeps:
        also_needs |= privileges.FILES
    child: Child | None = None
    source: Observer | None = None
    try:
        with heeding(lambda _number: None):  # for one, Python drops an exception raised after a fork
            if options.command:
                identity = None if options.as_root else user
                child = Child(options.command, environment, identity, output)
                _LOG.info("process %d waits to become %s", child.pid, masked(options.command))
            if options.own_process:  # while there is one thread
                with suppress(OSError):
                    file_reader.start(reader_child)
            threading.Thread(target=meanwhile, name="gputop-meanwhile", daemon=True).start()
            program = shutil.which(options.command[0], path=environment.get("PATH")) if child else None
            plan = LivePlan(
                pids=(child.pid,) if child else options.pid,
                rate_hz=rate_hz,
                ring_bytes=options.ring << 20,
                environment=environment,
                interpreters=interpreter_prefixes(options.command, environment),
                program=Path(program) if program else None,
                nvml_library=nvml_library,
                lines=options.lines or "slow",
                lines_later=lines_later,
                also_needs=also_needs if options.own_process else None,
                daemon=keeps,
                inside=library,
                annotations=annotations,
                poll_s=poll_s,
            )
            source, reason = start_observer(plan, own_command(options))
    except Interrupted as interrupt:
        if source is not None:
            source.abandon()
        if child is not None:
            child.discard()
        raise CommandError("interrupted before anything was observed", interrupt.status) from interrupt
    if reason and annotations is not None:
        annotations.close()  # of no use without calls
    header = {**source.header, "gputop": VERSION, "command": masked(options.command)}
    if getattr(options, "detail", "full") != "full":
        header["detail"] = options.detail
    owner = (user.uid, user.gid) if user else None
    try:
        redactor = redactor_of_here() if getattr(options, "redact", False) else None
        written = header if redactor is None else redactor.header(header)
        writer, segments = None, None
        whose: dict[str, Any] = {"owner": owner, "private": options.private}
        if record_to and limits is not None:
            clear_segments(record_to)
            segments = SegmentWriter(record_to, written, limits, sums=FileSums, **whose)
        elif record_to:
            writer = SessionWriter(record_to, written, overwrite=options.force, sums=FileSums(), **whose)
    except (SessionError, GputopError) as error:
        source.abandon()
        if child is not None:
            child.discard()
        raise CommandError(str(error)) from error
    return ObservedRun(source, reason, child, writer, header, owner, segments, redactor)
