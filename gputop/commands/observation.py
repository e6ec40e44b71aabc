"""What live and record share: the command to start, the source to open, the file to write."""

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
    """A started source, its command (waiting to be released) and its file.

    ``reason`` says why there is no eBPF, "" when there is.
    """

    source: Observer
    reason: str
    child: Child | None
    writer: SessionWriter | None
    header: dict[str, Any]  # of files and of the history
    owner: tuple[int, int] | None  # of files, behind sudo
    segments: SegmentWriter | None = None  # in place of one file
    redactor: Redactor | None = None  # of what is written

    @property
    def output(self) -> SessionWriter | SegmentWriter | None:
        """What is written, in one file or in segments."""
        return self.segments or self.writer

    def release(self) -> None:
        """Lets the command start, or only returns, when the source is ready for it.

        Raises:
            CommandError: It cannot be executed.
        """
        try:
            self._start()
        except CommandError:
            self.source.abandon()
            if self.output is not None:  # holds nothing
                self.output.discard()
            raise

    def release_meanwhile(self, failed: Callable[[CommandError], None]) -> threading.Thread:
        """As ``release``, in a thread of its own, for who reads the source already."""

        def release() -> None:
            try:
                self._start()
            except CommandError as error:
                failed(error)

        thread = threading.Thread(target=release, name="gputop-release", daemon=True)
        thread.start()
        return thread

    def items(self) -> Iterator[Item]:
        """What the source yields.

        Raises:
            CommandError: It cannot go on.
        """
        try:
            yield from self.source.items()
        except ProbeError as error:
            raise CommandError(str(error)) from error

    def over(self, *, watched: bool = False) -> bool:
        """True if nothing is left to watch: the command has ended, or with ``watched`` all processes have."""
        ended = self.child is not None and self.child.poll() is not None
        return ended or (watched and not self.source.alive)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """What ends gputop meanwhile is told the command as well, which has a session of its own."""
        with heeding(self._end):
            yield

    @contextmanager
    def ending(self) -> Iterator[None]:
        """As ``interrupting``, but the source's end ends the block: what is written is written whole."""
        with finishing(self._end):
            yield

    @contextmanager
    def answering(self, numbers: Collection[int] | None = None) -> Iterator[list[int]]:
        """As ``ending``, but what was seen until then is an answer: yields the signal that came, if any."""
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
    """Raises CommandError for a program that does not exist, before an older recording is replaced."""
    if not command or shutil.which(command[0], path=environment.get("PATH")):
        return
    found = shutil.which(command[0], mode=os.F_OK, path=environment.get("PATH"))
    if found is None:
        raise CommandError(f"cannot run {command[0]}: no such program", NOT_FOUND)
    raise CommandError(f"cannot run {command[0]}: {found} is not executable", NOT_EXECUTABLE)


@contextmanager
def closing_after(source: Source, seconds: float | None) -> Iterator[None]:
    """Closes the source after so many seconds, unless the block ends before; None: does not."""
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
    """What is said of an answer that an interrupt has made shorter."""
    return f"interrupted: this covers the {seconds:.1f} s observed until then"


def _annotations(
    options: argparse.Namespace, environment: dict[str, str], path: str
) -> tuple[Bound | None, dict[str, str]]:
    """The socket over which ranges are named, and an environment that tells the command where it is."""
    try:
        if options.command:
            own, address = own_socket()
            return own, {**environment, VARIABLE: address}
        if os.geteuid() == 0:
            shared = listen(path, socket.SOCK_DGRAM)
            return Bound(shared.socket, shared.close), environment
    except OSError as error:  # another gputop has it: its recordings have the ranges
        _LOG.info("no annotations are taken: %s", error)
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
    """Forks the command, loads and attaches the probes, opens the file, in this order.

    With ``lines_later`` what finds lines is loaded in the background, until which ``release`` waits.
    With ``limits`` it is recorded in segments, and ``record_to`` is their folder.
    With ``chooses`` a person will choose what to write, and where, and whom to send signals; with ``keeps``
    it is a daemon that writes files without being asked for, and does nothing else.
    ``poll_s`` is how often the ring of events is read.
    ``annotate_at`` is the socket where any program may name ranges; of a command it is one of its own.
    ``meanwhile`` runs in a thread of its own while the probes are compiled, which needs no Python.

    Raises:
        CommandError: Any of it failed; nothing is left behind, the command has not run.
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
        with heeding(lambda _number: None):  # Python drops what is raised after a fork, for one
            if options.command:
                identity = None if options.as_root else user
                child = Child(options.command, environment, identity, output)
                _LOG.info("process %d waits to become %s", child.pid, masked(options.command))
            if options.own_process:  # while there is one thread
                with suppress(OSError):
                    file_reader.start(reader_child)
            threading.Thread(target=meanwhile, name="gputop-meanwhile", daemon=True).start()
            source, reason = _start_source(
                options,
                child,
                environment,
                nvml_library,
                rate_hz,
                lines_later=lines_later,
                also_needs=also_needs,
                daemon=keeps,
                inside=library,
                annotations=annotations,
                poll_s=poll_s,
            )
    except Interrupted as interrupt:
        if source is not None:
            source.abandon()
        if child is not None:
            child.discard()
        raise CommandError("interrupted before anything was observed", interrupt.status) from interrupt
    if reason and annotations is not None:
        annotations.close()  # without calls there is nothing to name
    header = {**source.header, "gputop": VERSION, "command": masked(options.command)}
    if getattr(options, "detail", "full") != "full":
        header["detail"] = options.detail
    owner = (user.uid, user.gid) if user else None
    try:
        redactor = redactor_of_here() if getattr(options, "redact", False) else None
        written = header if redactor is None else redactor.header(header)
        private = options.private
        writer, segments = None, None
        if record_to and limits is not None:
            clear_segments(record_to)
            segments = SegmentWriter(record_to, written, limits, owner=owner, private=private, sums=FileSums)
        elif record_to:
            writer = SessionWriter(
                record_to, written, owner=owner, private=private, overwrite=options.force, sums=FileSums()
            )
    except (SessionError, GputopError) as error:
        source.abandon()
        if child is not None:
            child.discard()
        raise CommandError(str(error)) from error
    return ObservedRun(source, reason, child, writer, header, owner, segments, redactor)


def _program(command: list[str], environment: Mapping[str, str]) -> Path | None:
    found = shutil.which(command[0], path=environment.get("PATH")) if command else None
    return Path(found) if found else None


def _start_source(
    options: argparse.Namespace,
    child: Child | None,
    environment: Mapping[str, str],
    nvml_library: Path | None,
    rate_hz: float,
    *,
    lines_later: bool,
    also_needs: frozenset[privileges.Capability],
    daemon: bool,
    inside: Path | None,
    annotations: Bound | None,
    poll_s: float,
) -> tuple[Observer, str]:
    pids = options.pid
    if child is not None:
        pids = (child.pid,)
    plan = LivePlan(
        pids=pids,
        rate_hz=rate_hz,
        ring_bytes=options.ring << 20,
        environment=environment,
        interpreters=interpreter_prefixes(options.command, environment),
        program=_program(options.command, environment),
        nvml_library=nvml_library,
        lines=options.lines or "slow",
        lines_later=lines_later,
        also_needs=also_needs if options.own_process else None,
        daemon=daemon,
        inside=inside,
        annotations=annotations,
        poll_s=poll_s,
    )
    return start_observer(plan, own_command(options))
