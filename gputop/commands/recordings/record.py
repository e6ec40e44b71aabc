"""``gputop record``: records without a screen."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from gputop.commands.command import Command
from gputop.commands.flags import add_duration, add_output, add_target
from gputop.commands.observation import ObservedRun, closing_after, open_session
from gputop.commands.words import bounded, size
from gputop.errors import USAGE, CommandError
from gputop.format import format_bytes, format_count
from gputop.process.failures import refused
from gputop.process.interrupts import heeded
from gputop.process.stdio import print_message
from gputop.process.terminal import StatusLine
from probes.samples import lost_until
from probes.schema import Kind, Records
from probes.source import MARK, Item, Sample
from replay.coding.file_format import SessionError
from replay.segments import SegmentLimits

if TYPE_CHECKING:
    from gputop.recording.adaptive import RecordingDetail

DETAILS = ("full", "adaptive", "summary")


class _Progress:
    """A line for each mark: elapsed time, calls per second, size, lost events."""

    def __init__(self, session: ObservedRun) -> None:
        self._session = session
        self._began = self._last = time.monotonic()
        self._calls = 0

    def count(self, records: Records) -> None:
        outermost = (records["kind"] == Kind.CALL) & (records["depth"] == 0)
        self._calls += int(np.count_nonzero(outermost))

    def line(self, mark: Sample) -> str:
        now = time.monotonic()
        rate = self._calls / max(now - self._last, 1e-3)
        self._calls, self._last = 0, now
        lost = sum(lost_until(mark).values())
        writer = self._session.output
        assert writer is not None
        return (
            f"recording {now - self._began:.0f} s  {format_count(rate)} calls/s  "
            f"{format_bytes(writer.size_bytes)}  lost {lost}"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser, "FILE", "the recording to write")
    add_target(parser)
    parser.add_argument(
        "--detail",
        choices=DETAILS,
        default="full",
        help="full: all records (default); adaptive: all records around findings and unusually long calls, "
        "sums and histograms of the rest; summary: sums and histograms only. Totals are exact",
    )
    parser.add_argument(
        "--redact",
        action="store_true",
        help="write pseudonyms for host, users, paths, command lines and unwatched processes",
    )
    add_duration(parser, 1e9, "stop recording after S seconds; CMD keeps running")
    parser.add_argument(
        "--max-size",
        type=size,
        metavar="SIZE",
        help="record in segments of this size (500M, 2G); FILE becomes a folder, which opens like a file",
    )
    parser.add_argument(
        "--max-time", type=bounded(1, 1e9, "s"), metavar="S", help="record in segments of S seconds"
    )
    parser.add_argument(
        "--keep", type=bounded(2, 512, "segments"), metavar="N", help="keep the newest N segments only"
    )


def check(options: argparse.Namespace) -> None:
    if options.keep is not None and options.max_size is None and options.max_time is None:
        raise CommandError("--keep goes with --max-size or --max-time", USAGE)


def record(options: argparse.Namespace) -> int:
    """Run the command; return CMD's exit status, or 0 without CMD."""
    session = open_session(
        options, record_to=options.output, output=None, rate_hz=options.rate, limits=_limits(options)
    )
    if options.detail != "full" and session.reason:
        print_message("--detail has no effect: without eBPF no calls are recorded")
    source, child = session.source, session.child
    if session.reason:
        print_message(session.reason)

    began = time.monotonic()
    # even if ignored, as in a shell's background job: kill -INT ends a recording
    with session.answering({signal.SIGINT, signal.SIGTERM, *heeded()}) as came:
        try:
            session.release()
            with closing_after(source, options.duration), _detail(session, options.detail) as detail:
                failure = _write_all(session, detail, watched=bool(options.pid))
        finally:
            source.abandon()
        after = f"interrupted after {time.monotonic() - began:.1f} s; " if came else ""
        status = _outcome(session, options.output, failure, after)
    with session.interrupting():
        return child.wait() if child is not None and status == 0 else status


def _limits(options: argparse.Namespace) -> SegmentLimits | None:
    """Return when a segment ends; None: one file."""
    if options.max_size is None and options.max_time is None:
        return None
    span_ns = int(options.max_time * 1e9) if options.max_time else None
    return SegmentLimits(options.max_size, span_ns, int(options.keep) if options.keep else None)


@contextlib.contextmanager
def _detail(session: ObservedRun, chosen: str) -> Iterator[RecordingDetail | None]:
    """The filter of records; None: all are written."""
    header = session.source.header
    if chosen == "full" or header.get("calls_observed") is False:
        yield None
        return
    from gputop.analysis.live import LiveExplainer
    from gputop.recording.adaptive import Adaptive, SumsOnly

    start_ns = int(header["start_ns"])
    if chosen == "summary":
        yield SumsOnly(start_ns)
        return
    explainer = LiveExplainer(header)
    explainer.start()
    try:
        yield Adaptive(start_ns, explainer)
    finally:
        explainer.close()


def _write_all(
    session: ObservedRun, detail: RecordingDetail | None, *, watched: bool
) -> SessionError | CommandError | None:
    """Write until the source ends; an error, which is returned, ends the recording, not the command."""
    progress = _Progress(session)
    child = session.child
    terminal = child.terminal.descriptor if child is not None and child.terminal is not None else None
    status = StatusLine(shared=child is not None, terminal=terminal)
    writer = session.output
    assert writer is not None

    def write(items: Iterable[Item]) -> None:
        for item in items:
            writer.write(session.redactor.item(item) if session.redactor is not None else item)

    try:
        for item in session.items():
            write(detail.consume(item) if detail is not None else (item,))
            if not isinstance(item, Sample):
                progress.count(item)
            elif item.kind == MARK:
                status.write(progress.line(item))
                if session.over(watched=watched):
                    session.source.close()
        if detail is not None:
            write(detail.finish())
            if omission := detail.omission():
                status.close()
                print_message(f"{writer.path}: {omission}")
        writer.close()
    except SessionError as error:
        session.source.close()
        return error
    except CommandError as error:  # the source has failed
        return error
    except (MemoryError, OSError, RuntimeError) as error:
        session.source.close()
        if not (lacking := refused(error)):
            raise
        return SessionError(f"recording to {writer.path} stopped: {lacking}")
    finally:
        status.close()
        with contextlib.suppress(SessionError, MemoryError):  # reported already, or the file is whole
            writer.close()
    return None


def _outcome(session: ObservedRun, path: str, failure: Exception | None, after: str) -> int:
    writer = session.output
    assert writer is not None
    if isinstance(failure, CommandError):
        print_message(f"{failure}; the recording until then is complete: {path}")
    elif failure is not None:
        print_message(str(failure))
    if failure is not None:
        if session.child is not None:
            session.child.wait()
        return 1
    print_message(
        f"{after}{path}: {format_count(writer.events)} events, {format_bytes(writer.size_bytes)}; "
        f"see it with: gputop replay {shlex.quote(path)}"
    )
    child = session.child
    if child is not None and os.path.basename(child.command[0]) == "srun":
        print_message(
            "srun's tasks are children of slurmstepd, so they were not watched; to watch them: "
            "srun sh -c 'exec gputop record -o rank$SLURM_PROCID.msgpack -- CMD'"
        )
    if child is not None and child.poll() is None:
        print_message(f"waiting for {child.command[0]} (process {child.pid}) to end")
    return 0


COMMAND = Command(
    usage=("gputop record -o FILE [flags] [-- CMD ARGS…]",),
    description="Record without a screen until CMD ends, until --duration is over, or until ^C.",
    add_arguments=add_arguments,
    run=record,
    check=check,
    starts=True,
)
