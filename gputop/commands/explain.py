"""``gputop explain``: why the GPU waits, over a recording or a stretch of the present."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from typing import TYPE_CHECKING

from gputop.commands.command import Command
from gputop.commands.flags import add_duration, add_file, add_json, add_target, file_or_now
from gputop.commands.progress import INTERRUPTED, Progress
from gputop.commands.words import bounded
from gputop.errors import USAGE, CommandError
from gputop.explain.answer.markdown import report_to_markdown
from gputop.explain.answer.output import report_to_text
from gputop.explain.answer.report import Report
from gputop.explain.evidence.memory import keep_freed
from gputop.library import answers
from gputop.process.interrupts import end_at_once
from gputop.process.say import put, show
from gputop.process.terminal import terminal_width

if TYPE_CHECKING:
    from gputop.commands.session import Session

FOUND = 3  # exit status when something is lost
_WIDTH = 100
_SECONDS = 10.0  # without --duration
_RATE_HZ = 4.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what can be typed."""
    add_file(parser, "file", nargs="?", metavar="FILE", help="a recording; without FILE: observe now")
    add_target(parser)
    add_json(parser)
    parser.add_argument("--markdown", action="store_true", help="print Markdown, to paste into an issue")
    add_duration(parser, 86400, "without FILE: seconds to observe (10)")
    for name, where, edge in (("from", "since", "start"), ("to", "until", "end")):
        parser.add_argument(
            f"--{name}",
            dest=where,
            type=bounded(0, 1e9, "s"),
            metavar="T",
            help=f"{edge} of the time range, in seconds after the start of FILE",
        )
    parser.add_argument(
        "--memory",
        type=bounded(0.3, 4096, "GiB"),
        metavar="GIB",
        help="memory limit in GiB (1); a larger recording is explained in parts",
    )
    parser.add_argument(
        "--fail-over",
        type=bounded(0, 100, "%"),
        metavar="PERCENT",
        help="exit with status 3 only when more than this share of the time is lost",
    )


def check(options: argparse.Namespace) -> None:
    """What excludes each other."""
    file_or_now("explain", options)
    if not options.file and (options.since, options.until) != (None, None):
        raise CommandError("--from and --to go with a FILE", USAGE)
    if options.json and options.markdown:
        raise CommandError("--json and --markdown exclude each other", USAGE)
    if options.memory and not options.file:
        raise CommandError("--memory goes with a FILE", USAGE)


def explain(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status: 0 nothing lost, 3 findings."""
    report, stopped = from_file(options) if options.file else (from_now(options), False)
    if options.json:
        put(json.dumps(answers.to_json(report)) + "\n")
    elif options.markdown:
        show(report_to_markdown(report))
    else:
        show(report_to_text(report, min(terminal_width(sys.stdout) or _WIDTH, _WIDTH)))
    if stopped:
        return INTERRUPTED
    if options.fail_over is not None:
        return FOUND if 100 * report.lost_share > options.fail_over else 0
    return FOUND if report.findings else 0


def from_file(options: argparse.Namespace) -> tuple[Report, bool]:
    """Explains a session file, or what is between ``--from`` and ``--to``; True where it was interrupted."""
    keep_freed()
    with Progress("reading", partial=True) as progress:
        report = answers.explain(
            options.file,
            pids=options.pid,
            start_s=options.since,
            end_s=options.until,
            progress=progress,
            memory_bytes=int(options.memory * (1 << 30)) if options.memory else None,
        )
    return report, progress.stopped


def from_now(options: argparse.Namespace) -> Report:
    """Observes for ``--duration``, or until the command ends, then explains."""
    # what observes takes 0.1 s to import, which a recording has no use for
    from gputop.commands.session import open_session
    from gputop.explain.build import explain as build
    from gputop.explain.evidence.assemble import assemble
    from gputop.explain.evidence.gatherer import Gatherer

    # the report is ours alone: what the command prints goes to standard error
    output = os.dup(2) if options.command else None
    session = open_session(options, record_to=None, output=output, rate_hz=_RATE_HZ)
    if output is not None:
        os.close(output)
    if session.reason:
        session.source.abandon()
        raise CommandError(f"there is nothing to explain: {session.reason}")
    gatherer = Gatherer(session.source.header)
    seconds = options.duration or (None if options.command else _SECONDS)
    timer = threading.Timer(seconds, session.source.close) if seconds else None
    try:
        with session.interrupting():
            session.release()
            if timer is not None:
                timer.daemon = True
                timer.start()
            for item in session.items():
                if gatherer.feed(item) and _ended(session, watched=bool(options.pid)):
                    session.source.close()
    finally:
        if timer is not None:
            timer.cancel()
        session.source.abandon()
    end_at_once()
    return build(assemble(gatherer), frozenset(options.pid or ()) or None)


def _ended(session: Session, *, watched: bool) -> bool:
    """Whether there is nothing left to watch."""
    ended = session.child is not None and session.child.poll() is not None
    return ended or (watched and not session.source.alive)


COMMAND = Command(
    usage=(
        "gputop explain FILE [flags]",
        "gputop explain [flags] [-- CMD ARGS…]",
    ),
    description="Report how long the GPU was idle, why, and what to change. "
    "Exit status: 0 without findings, 3 with findings, 1 after an error.",
    add_arguments=add_arguments,
    run=explain,
    starts=True,
    check=check,
    only_reads=lambda options: bool(options.file),
)
