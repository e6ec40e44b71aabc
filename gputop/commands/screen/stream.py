"""``gputop stream``: frames as lines of JSON."""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import threading

from gputop.api.session import Session as Recording
from gputop.commands.command import Command
from gputop.commands.flags import add_duration, add_file, add_target, file_or_now
from gputop.commands.observation import ObservedRun, closing_after, open_session
from gputop.engine.engine import Engine
from gputop.engine.frame import Frame
from gputop.engine.frame_json import frame_to_json
from gputop.process.interrupts import heeded
from gputop.process.stdio import print_message, writing

MOST_WAITING = 32  # lines for a slow reader in the queue; then frames are left out
MOST_BYTES = 16 << 20  # the same in bytes
_LAST_WORDS_S = 2.0  # for a slow reader to empty the queue at the end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", nargs="?", metavar="FILE", help="a recording; without FILE: observe now")
    parser.add_argument("--jsonl", action="store_true", required=True, help="one JSON object per line")
    add_target(parser)
    add_duration(parser, 1e9, "without FILE: end after S seconds")


def stream(options: argparse.Namespace) -> int:
    return _recorded(options.file) if options.file else _present(options)


def line_of(frame: Frame) -> bytes:
    return json.dumps(frame_to_json(frame), separators=(",", ":")).encode() + b"\n"


class LineWriter:
    """Writes lines in a thread, so that a slow reader causes no lost events."""

    def __init__(self, descriptor: int) -> None:
        self.failure: OSError | None = None
        self._descriptor = descriptor
        self._bytes, self._held = 0, threading.Lock()
        self._lines: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="gputop-lines", daemon=True)
        self._thread.start()

    @property
    def behind(self) -> bool:
        """True if the queue is full: the next frame is to be left out."""
        return self._lines.full() or self._bytes > MOST_BYTES

    def put(self, line: bytes) -> None:
        """Queue a line; not while the reader is ``behind``."""
        with self._held:
            self._bytes += len(line)
        self._lines.put_nowait(line)

    def close(self) -> None:
        """Wait until all lines are written, for 2 s at most.

        Raises:
            OutputError: A line could not be written, for example to a full disk.
            BrokenPipeError: The reader is gone.
        """
        try:
            self._lines.put(None, timeout=_LAST_WORDS_S)
            self._thread.join(_LAST_WORDS_S)
        except queue.Full:
            pass
        if self.failure is not None:
            with writing():
                raise self.failure

    def _run(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                write_all(self._descriptor, line)
                with self._held:
                    self._bytes -= len(line)
        except OSError as error:
            self.failure = error


def write_all(descriptor: int, line: bytes) -> None:
    """Write a whole line, in as many parts as needed."""
    while line:
        line = line[os.write(descriptor, line) :]


def _recorded(path: str) -> int:
    """Write every frame of a recording."""
    with Recording(path) as recording:
        for frame in recording.frames():
            line = line_of(frame)
            with writing():
                write_all(1, line)
    return 0


def _present(options: argparse.Namespace) -> int:
    # standard output is for the frames: the command's output goes to standard error
    output = os.dup(2) if options.command else None
    session = open_session(options, record_to=None, output=output, rate_hz=options.rate)
    if output is not None:
        os.close(output)
    if session.reason:
        print_message(session.reason)
    writer = LineWriter(1)
    with session.answering({signal.SIGINT, signal.SIGTERM, *heeded()}):
        try:
            session.release()
            with closing_after(session.source, options.duration):
                _follow(session, writer, watched=bool(options.pid))
        finally:
            session.source.abandon()
    writer.close()
    return 0


def _follow(session: ObservedRun, writer: LineWriter, *, watched: bool) -> None:
    """Write frames until the source ends, the reader is gone, or nothing is left to watch."""
    engine = Engine(session.source.header)
    for item in session.items():
        if not engine.feed(item):
            continue
        if not writer.behind:
            writer.put(line_of(engine.frame()))
        if writer.failure is not None or session.over(watched=watched):
            session.source.close()


COMMAND = Command(
    usage=(
        "gputop stream --jsonl [FILE]",
        "gputop stream --jsonl [flags] [-- CMD ARGS…]",
    ),
    description="Print each frame as one line of JSON (docs/json.md), until ^C or until CMD ends.",
    add_arguments=add_arguments,
    run=stream,
    starts=True,
    check=lambda options: file_or_now("stream", options),
    only_reads=lambda options: bool(options.file),
)
