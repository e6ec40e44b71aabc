"""``gputop explain``: why the GPU is idle, in a recording or now."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.analysis.answer.report import Report
from gputop.analysis.answer.report_output import report_to_markdown, report_to_text
from gputop.api import functions
from gputop.commands.command import Command
from gputop.commands.flags import add_duration, add_file, add_json, add_memory, add_target, file_or_now
from gputop.commands.progress import INTERRUPTED, ProgressBar
from gputop.commands.words import bounded
from gputop.engine.malloc_tuning import keep_freed
from gputop.errors import FAILURE, USAGE, CommandError
from gputop.process.interrupts import end_at_once
from gputop.process.stdio import print_message, put, show
from gputop.process.targets import named, without_cuda
from gputop.process.terminal import terminal_width

if TYPE_CHECKING:
    from gputop.process.child import Child


def unseen(child: Child | None, pids: tuple[int, ...] | None, seconds: float) -> str:
    """Return why no CUDA call was seen, with the next step."""
    if child is not None:
        if ended := child.outcome():
            return f"{ended} without a CUDA call"
        return f"{child.name} made no CUDA call in {seconds:.1f} s"
    if pids:
        who = named(pids[0]) if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
        return without_cuda(pids) or (
            f"{who} made no CUDA call in {seconds:.1f} s: --duration observes for longer, gputop check --pid "
            f"{','.join(map(str, pids))} shows whether its calls can be seen"
        )
    return (
        f"no process made a CUDA call in {seconds:.1f} s: --duration observes for longer, gputop check shows "
        "what can be observed"
    )


FOUND = 3  # exit status with findings
_WIDTH = 100
_SECONDS = 10.0  # without --duration
_RATE_HZ = 4.0
_GRACE_S = 1.0  # for the command to end after an interrupt


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    add_memory(parser)
    parser.add_argument(
        "--fail-over",
        type=bounded(0, 100, "%"),
        metavar="PERCENT",
        help="exit with status 3 only when more than this share of the time is lost",
    )


def check(options: argparse.Namespace) -> None:
    file_or_now("explain", options)
    if not options.file and (options.since, options.until) != (None, None):
        raise CommandError("--from and --to go with a FILE", USAGE)
    if options.json and options.markdown:
        raise CommandError("--json and --markdown exclude each other", USAGE)
    if options.memory and not options.file:
        raise CommandError("--memory goes with a FILE", USAGE)


def explain(options: argparse.Namespace) -> int:
    """Run the command; return the exit status: 0 no findings, 3 findings, 130 a partial result."""
    report, unseen, interrupted, child = _of_file(options) if options.file else _of_now(options)
    if options.json:
        put(json.dumps(functions.to_json(report)) + "\n")
    elif unseen:
        pass
    elif options.markdown:
        show(report_to_markdown(report))
    else:
        show(report_to_text(report, min(terminal_width(sys.stdout) or _WIDTH, _WIDTH)))
    if unseen:
        print_message(unseen)
    if child is not None and not child.ends_within(_GRACE_S if interrupted else 0):
        print_message(f"{child.name} keeps running as process {child.pid}")
    if interrupted:
        return interrupted
    if unseen:
        return FAILURE
    if options.fail_over is not None:
        return FOUND if 100 * report.lost_share > options.fail_over else 0
    return FOUND if report.findings else 0


def _of_file(options: argparse.Namespace) -> tuple[Report, str, int, None]:
    keep_freed()
    with ProgressBar("reading", partial=True) as progress:
        report = functions.explain(
            options.file,
            pids=options.pid,
            start_s=options.since,
            end_s=options.until,
            progress=progress,
            memory_bytes=options.memory,
        )
    return report, "", INTERRUPTED if progress.stopped else 0, None


def _of_now(options: argparse.Namespace) -> tuple[Report, str, int, Child | None]:
    """Observe for ``--duration``, until the command ends or an interrupt, then explain.

    Returns:
        The report; why no CUDA call was seen, or ""; the exit status after an interrupt, or 0; the command.
    """
    # these take 0.1 s to import, and a recording needs none of them
    from gputop.analysis.build import explain as build
    from gputop.analysis.evidence.assembly import assemble
    from gputop.analysis.evidence.gatherer import Gatherer
    from gputop.commands.observation import closing_after, interrupted_after, open_session
    from gputop.process.targets import children_with_cuda

    # standard output is for the report: the command's output goes to standard error
    output = os.dup(2) if options.command else None
    session = open_session(options, record_to=None, output=output, rate_hz=_RATE_HZ)
    if output is not None:
        os.close(output)
    if session.reason:
        session.source.abandon()
        raise CommandError(f"there is nothing to explain: {session.reason}")
    if options.pid and children_with_cuda(options.pid) and (wrong := without_cuda(options.pid)):
        session.source.abandon()
        raise CommandError(wrong)  # at once, not after ten seconds
    gatherer = Gatherer(session.source.header)
    seconds = options.duration or (None if options.command else _SECONDS)
    began = time.monotonic()
    try:
        with session.answering() as came:
            session.release()
            began = time.monotonic()
            with closing_after(session.source, seconds):
                for item in session.items():
                    if gatherer.feed(item) and session.over(watched=bool(options.pid)):
                        session.source.close()
    finally:
        session.source.abandon()
    end_at_once()
    seen_s = time.monotonic() - began
    evidence = assemble(gatherer)
    report = build(evidence, frozenset(options.pid or ()) or None)
    missing = "" if len(evidence.calls) else unseen(session.child, options.pid, seen_s)
    if not came:
        return report, missing, 0, session.child
    note = interrupted_after(seen_s)
    print_message(note)
    return replace(report, notes=(note, *report.notes)), missing, 128 + came[0], session.child


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
