"""``gputop``: the live screen, or one frame of it."""

from __future__ import annotations

import argparse
import importlib
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.commands.command import Command
from gputop.commands.flags import add_duration, add_screen, add_target, check_once
from gputop.demo.workload import is_workload
from gputop.errors import CommandError
from gputop.process.interrupts import Interrupted, end_at_once, finishing, heeding
from gputop.process.stdio import print_message
from gputop.process.terminal import require_terminal
from replay.coding.file_format import SessionError

# imported by need, which keeps `gputop --help` fast
if TYPE_CHECKING:
    from gputop.analysis.window import Window
    from gputop.commands.observation import ObservedRun
    from gputop.commands.screen.command_output import OutputFile
    from gputop.engine.engine import Engine
    from probes.source import Item
    from replay.writer import SessionWriter

ONCE_S = 2.0
SHARE = "--share"  # in place of a screen: observe for those who connect there


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_screen(parser)
    add_duration(parser, 86400, "with --once: seconds to observe (2)")
    parser.add_argument(SHARE, metavar="PATH", help=argparse.SUPPRESS)  # of gputop web


def live(options: argparse.Namespace) -> int:
    if options.share:
        from gputop.commands.screen.share import share

        return share(options)
    return _once(options) if options.once else _screen(options)


def _once(options: argparse.Namespace) -> int:
    from gputop.analysis.window import Window
    from gputop.commands.observation import interrupted_after, open_session
    from gputop.commands.screen.command_output import OutputFile
    from gputop.commands.screen.looks import RATE_HZ
    from gputop.commands.screen.text import print_frame
    from gputop.engine.engine import Engine

    seconds = options.duration or ONCE_S
    # a file, since the command's output must not mix with the frame, nor keep gputop's output open
    log = OutputFile() if options.command else None
    if options.lines is None and not options.record:
        options.lines = "off"  # they take half a second to compile
    with _kept_if_used(log):
        session = open_session(
            options,
            record_to=options.record,
            output=log.descriptor if log else None,
            rate_hz=options.rate or RATE_HZ,
        )
        header = session.source.header
        window = Window(header) if not session.reason else None
        engine = Engine(header, window_ns=int((seconds + 1) * 1e9))
        began = time.monotonic()
        with session.answering() as came:
            failure = _observe(session, seconds, engine, window)
        seen_s = time.monotonic() - began
        end_at_once()
        frame, verdict = engine.frame(), window.verdict() if window is not None else None
        if came:
            frame = replace(frame, problems=(interrupted_after(seen_s), *frame.problems))
        outcome = session.child.outcome() if session.child is not None else ""
        lines = log.reader().read().splitlines() if outcome and log is not None else []
        print_frame(options, frame, verdict, outcome, lines)
    farewell(session, log)
    if failure is not None:
        raise CommandError(str(failure))
    return 128 + came[0] if came else 0


class _Recording:
    """The session file beside the frame, if any; after a failure nothing more is written."""

    def __init__(self, writer: SessionWriter | None) -> None:
        self.failure: SessionError | None = None
        self._writer = writer

    def write(self, item: Item) -> None:
        if self._writer is not None and self.failure is None:
            try:
                self._writer.write(item)
            except SessionError as error:
                self.failure = error

    def close(self) -> None:
        if self._writer is not None:
            try:
                self._writer.close()
            except SessionError as error:
                self.failure = self.failure or error


@contextmanager
def _kept_if_used(log: OutputFile | None) -> Iterator[None]:
    """Remove the file of the command's output if the screen fails and it is empty."""
    try:
        yield
    except BaseException:
        if log is not None and log.size == 0:
            log.remove()
        raise


def _observe(
    session: ObservedRun, seconds: float, engine: Engine, window: Window | None
) -> SessionError | None:
    """Start the command and consume the source for ``seconds``, or until the command ends.

    Returns:
        Why the recording could not be written, if so.

    Raises:
        CommandError: The command cannot be executed, or the source failed.
    """
    from gputop.commands.observation import closing_after

    source, recording = session.source, _Recording(session.writer)
    try:
        session.release()
        with closing_after(source, seconds):
            for item in session.items():
                recording.write(item)
                if window is not None:
                    window.feed(item)
                if engine.feed(item) and session.over():
                    source.close()
    finally:
        with finishing():
            try:
                source.abandon()
            finally:
                recording.close()
    return recording.failure


def _screen(options: argparse.Namespace) -> int:
    require_terminal()
    from gputop.commands.observation import open_session
    from gputop.commands.screen.command_output import OutputFile
    from gputop.commands.screen.looks import RATE_HZ, preferences, startup_of
    from gputop.engine.own_memory import OwnMemory
    from gputop.playback.feeds import CommandLog, LiveFeed
    from gputop.playback.recorder import Recorder
    from gputop.ui.run import run_app
    from replay.past.history import History

    preferred = preferences()
    rate_hz = options.rate or preferred.rate_hz or RATE_HZ
    output = OutputFile() if options.command else None
    log = CommandLog(output.path, output.reader()) if output else None
    with _kept_if_used(output):
        session = open_session(
            options,
            record_to=options.record,
            output=output.descriptor if output else None,
            rate_hz=rate_hz,
            lines_later=True,
            chooses=True,
            meanwhile=lambda: importlib.import_module("gputop.ui.app"),
        )
    recorder = Recorder(History(session.header), session.writer, owner=session.owner, private=options.private)
    outcome = session.child.outcome if session.child is not None else None
    memory = OwnMemory() if preferred.budget_percent else None
    feed = LiveFeed(session.source, log, recorder=recorder, outcome=outcome, memory=memory)
    refused: list[CommandError] = []

    def fail(error: CommandError) -> None:
        refused.append(error)
        feed.fail(str(error))

    try:
        with heeding(lambda number: None):  # before and after the screen, which heeds them itself
            feed.start()
            released = session.release_meanwhile(fail)
            startup = startup_of(
                options,
                preferred,
                getattr(options, "title", " ".join(options.command)),
                rate_hz=rate_hz,
                selected_pid=session.child.pid if session.child else (options.pid or (None,))[0],
                readonly=options.readonly,
            )
            status = run_app(feed, startup, ease=feed.ease)
    except Interrupted as interrupt:
        status = interrupt.status
    finally:
        with finishing():
            feed.close()
            session.source.abandon()
    released.join()
    if status == 128 + signal.SIGHUP and session.child is not None:
        session.child.send(signal.SIGHUP)  # the command has a session of its own
    if refused:
        raise refused[0]
    farewell(session, output)
    if feed.failure():
        raise CommandError(str(feed.failure()))
    return status


def farewell(session: ObservedRun, log: OutputFile | None) -> None:
    """Print the command's process and output file. A demo is ended."""
    child = session.child
    if child is None:
        return
    if is_workload(child.command):
        child.send(signal.SIGTERM)
        if log is not None:
            log.remove()
        return
    output = f"; its output: {log.path}" if log is not None else ""
    status = child.poll()
    if status is None:
        print_message(f"{child.name} keeps running as process {child.pid}{output}")
    elif log is not None and log.size == 0:
        log.remove()
    elif log is not None:
        print_message(f"{child.outcome()}{output}")


COMMAND = Command(
    usage=(
        "gputop [flags] [-- CMD ARGS…]",
        "gputop FILE",
        "gputop COMMAND …",
    ),
    description="Shows why the GPU is idle: CUDA calls, context switches and GPU activity of each "
    "process, live, and the causes of idle time. Programs are observed from outside, by "
    "eBPF uprobes and scheduler tracepoints; they are not changed or restarted.",
    add_arguments=add_arguments,
    run=live,
    starts=True,
    check=check_once,
    has_screen=lambda options: not (options.once or options.share),
)
