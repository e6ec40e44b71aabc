"""``gputop fleet``: recordings in a lake, explained once and queried together."""

from __future__ import annotations

import argparse
import os
from contextlib import closing, nullcontext
from datetime import date

from gputop.commands.command import Command
from gputop.commands.flags import add_output
from gputop.commands.progress import INTERRUPTED, ProgressBar
from gputop.commands.recordings.html_report import write_page
from gputop.commands.recordings.sql import add_answer, add_timeout, answered, print_result
from gputop.commands.words import bounded
from gputop.errors import FAILURE, USAGE, CommandError
from gputop.fleet.ingest import ingest
from gputop.fleet.lake.lake import open_lake
from gputop.fleet.lake.lake_summary import TABLES as TABLES_OF_ALL
from gputop.fleet.lake.lake_summary import summed
from gputop.fleet.lake.pieces import LakeSelection
from gputop.fleet.lake.questions import FINDINGS, GROUPS, overview
from gputop.fleet.lake.urls import called, shown
from gputop.fleet.lake_html import ROWS, fleet_page
from gputop.fleet.on_dask import ADDRESS, dask
from gputop.fleet.ranks.stragglers import TABLES, stragglers
from gputop.format import format_count, format_counted
from gputop.process.stdio import print_message
from gputop.query.forked import bound_memory

_MOST_PRINTED = 20  # problems; all are in the lake's table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(
        prog="gputop fleet",
        dest="what",
        required=True,
        metavar="ingest|overview|findings|stragglers|screen|report|sql",
    )
    taking = what.add_parser("ingest", help="explain recordings and add them to a lake")
    taking.add_argument(
        "sessions", metavar="SESSION", nargs="+", help="files, folders of them, URLs (s3://…)"
    )
    taking.add_argument("--into", metavar="LAKE", required=True, help="a folder or a URL; created if missing")
    taking.add_argument(
        "--workers",
        type=bounded(1, 1024, "processes"),
        metavar="N",
        help="number of worker processes (one per CPU)",
    )
    taking.add_argument("--dask", action="store_true", help="use a temporary Dask cluster on this machine")
    taking.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help=f"use the workers of this Dask scheduler: tcp://HOST:8786 or its file.json ({ADDRESS})",
    )
    hours = _query_arguments(what.add_parser("overview", help="the most expensive causes, in GPU hours"))
    hours.add_argument("--by", choices=GROUPS, default="cause", help="sum by this (cause)")
    _query_arguments(what.add_parser("findings", help="the findings of all sessions, most expensive first"))
    late = _query_arguments(what.add_parser("stragglers", help="ranks that other ranks wait for, and why"))
    late.add_argument(
        "--all",
        action="store_true",
        dest="rest",
        help="also list communicators without a late rank, with the reason",
    )
    add_timeout(_choosing(what.add_parser("screen", help="browse jobs, ranks and sessions in the terminal")))
    page = _choosing(
        what.add_parser("report", help="one HTML page: most expensive causes, late ranks, coverage, losses")
    )
    add_output(page, "PAGE", "the page")
    add_timeout(page)
    _query_arguments(what.add_parser("sql", help="any SELECT in DuckDB's SQL")).add_argument(
        "query", metavar="SELECT", help="one SELECT over the lake's tables (docs/fleet.md); in quotes"
    )


def run(options: argparse.Namespace) -> int:
    return _ingest(options) if options.what == "ingest" else _run_query(options)


def _query_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add_answer(_choosing(parser))
    return parser


def _choosing(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the lake, and which part of it."""
    parser.add_argument("lake", metavar="LAKE", help="the folder or URL that ingest wrote")
    parser.add_argument("--job", metavar="ID", help="this job only; files of other jobs are not read")
    parser.add_argument(
        "--date",
        type=_days,
        metavar="DAY",
        help="sessions that began on this day (2026-11-23, UTC) or in DAY..DAY only",
    )
    return parser


def _days(text: str) -> tuple[date, date]:
    first, _, last = text.partition("..")
    try:
        return date.fromisoformat(first), date.fromisoformat(last or first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day: type 2026-11-23 or DAY..DAY") from None


def _part(options: argparse.Namespace) -> LakeSelection:
    since, until = options.date or (None, None)
    return LakeSelection(options.job, since, until)


def _check(options: argparse.Namespace) -> None:
    if options.what == "ingest" and options.scheduler and (options.dask or options.workers):
        other = "--dask" if options.dask else "--workers"
        raise CommandError(f"{other} and --scheduler exclude each other", USAGE)


def _ingest(options: argparse.Namespace) -> int:
    workers = int(options.workers or os.cpu_count() or 1)
    here = options.dask or options.workers
    scheduler = options.scheduler or (None if here else os.environ.get(ADDRESS))
    on = dask(scheduler, workers, print_message) if options.dask or scheduler else nullcontext(None)
    with on as engine, ProgressBar("searching", partial=True) as progress:
        done = ingest(options.sessions, options.into, workers, engine=engine, progress=progress)
    for row in done.problems[:_MOST_PRINTED]:
        print_message(f"{row['path']}: {row['what']}: {row['text']}")
    if len(done.problems) > _MOST_PRINTED:
        print_message(
            f"{format_count(len(done.problems) - _MOST_PRINTED)} more: see the lake's table problems"
        )
    unread = sum(row["what"] == "unreadable" for row in done.problems)
    print_message(
        f"{shown(options.into)}: {format_counted(done.explained, 'session')} explained, "
        f"{format_count(done.known)} already known, {format_count(unread)} unreadable"
    )
    if progress.stopped:
        print_message(f"interrupted: {format_count(done.left)} are left for the next run")
        return INTERRUPTED
    return FAILURE if unread else 0


def _run_query(options: argparse.Namespace) -> int:
    if options.what == "stragglers":
        return _stragglers(options)
    if options.what == "screen":
        from gputop.commands.daemon.lake_screen import screen  # no other action needs Textual

        return screen(options, _part(options))
    if options.what == "report":
        return _report(options)
    if options.what == "sql":
        return answered(str(options.query), lambda: open_lake(options.lake, part=_part(options)), options)
    text = overview(options.by) if options.what == "overview" else FINDINGS
    tables = ("sessions", "findings")
    return answered(text, lambda: open_lake(options.lake, tables, _part(options)), options)


def _stragglers(options: argparse.Namespace) -> int:
    if options.own_process:
        bound_memory()
    with closing(open_lake(options.lake, TABLES, _part(options))) as database:
        found = stragglers(database, options.timeout, rest=options.rest, limit=int(options.limit))
    print_result(found.answer, options)
    many = found.late + found.healthy + found.unknown
    print_message(
        f"{format_counted(many, 'communicator')}: {format_count(found.late)} with a late rank, "
        f"{format_count(found.healthy)} without, {format_count(found.unknown)} unknown (--all shows why)"
    )
    if found.unnumbered:
        print_message(
            f"{format_count(found.unnumbered)} processes use communicators whose creation was not recorded"
        )
    return 0


def _report(options: argparse.Namespace) -> int:
    if options.own_process:
        bound_memory()
    with closing(open_lake(options.lake, TABLES_OF_ALL, _part(options))) as database:
        summary = summed(database, ROWS, options.timeout)
    write_page(options, fleet_page(summary, called(options.lake)))
    return 0


COMMAND = Command(
    usage=(
        "gputop fleet ingest SESSION... --into LAKE",
        "gputop fleet overview LAKE",
        "gputop fleet findings LAKE",
        "gputop fleet stragglers LAKE",
        "gputop fleet screen LAKE",
        "gputop fleet report LAKE -o PAGE",
        "gputop fleet sql LAKE SELECT",
    ),
    description="Explain many recordings once, in parallel, and query them together: GPU hours lost by "
    "cause, line, user and job, and ranks that other ranks wait for (docs/fleet.md).",
    add_arguments=add_arguments,
    run=run,
    check=_check,
    only_reads=lambda options: options.what not in ("ingest", "report", "screen"),
    has_screen=lambda options: options.what == "screen",
)
