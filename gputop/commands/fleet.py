"""``gputop fleet``: many recordings explained once, then asked together."""

from __future__ import annotations

import argparse
import os

from gputop.commands.asking import add_answer, answered
from gputop.commands.command import Command
from gputop.commands.words import bounded
from gputop.errors import FAILURE
from gputop.fleet.ingest import ingest
from gputop.fleet.lake import open_lake
from gputop.fleet.questions import FINDINGS, GROUPS, overview
from gputop.format import format_count
from gputop.process.say import say

_TOLD = 20  # problems that are printed; all are in the lake's table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what can be typed."""
    what = parser.add_subparsers(dest="what", required=True, metavar="ingest|overview|findings|sql")
    taking = what.add_parser("ingest", help="explain recordings and add them to a lake")
    taking.add_argument("sessions", metavar="SESSION", nargs="+", help="files, and folders of them")
    taking.add_argument("--into", metavar="LAKE", required=True, help="a folder; made where it is not there")
    taking.add_argument(
        "--workers",
        type=bounded(1, 1024, "processes"),
        default=os.cpu_count() or 1,
        metavar="N",
        help="explain in so many processes (one a processor)",
    )
    hours = _asking(what.add_parser("overview", help="what costs most GPU hours"))
    hours.add_argument("--by", choices=GROUPS, default="cause", help="add up by this (cause)")
    _asking(what.add_parser("findings", help="the findings of all sessions, most expensive first"))
    _asking(what.add_parser("sql", help="any SELECT in DuckDB's SQL")).add_argument(
        "query", metavar="SELECT", help="one SELECT over sessions, findings, problems; in quotes"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    return _ingest(options) if options.what == "ingest" else _ask(options)


def _asking(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("lake", metavar="LAKE", help="what ingest wrote")
    add_answer(parser)
    return parser


def _ingest(options: argparse.Namespace) -> int:
    done = ingest(options.sessions, options.into, int(options.workers))
    for row in done.problems[:_TOLD]:
        say(f"{row['path']}: {row['what']}: {row['text']}")
    if len(done.problems) > _TOLD:
        say(f"{format_count(len(done.problems) - _TOLD)} more problems are in the lake's table problems")
    unread = sum(row["what"] == "unreadable" for row in done.problems)
    say(
        f"{options.into}: {format_count(done.explained)} sessions explained, {format_count(done.known)} "
        f"known already, {format_count(unread)} unreadable"
    )
    return FAILURE if unread else 0


def _ask(options: argparse.Namespace) -> int:
    if options.what == "sql":
        text = str(options.query)
    else:
        text = overview(options.by) if options.what == "overview" else FINDINGS
    return answered(text, lambda: open_lake(options.lake), options)


COMMAND = Command(
    usage="gputop fleet ingest SESSION... --into LAKE | overview LAKE | findings LAKE | sql LAKE SELECT",
    description="Explain many recordings once, in worker processes, and ask them together: what costs most "
    "GPU hours, by cause, line, user and job (docs/fleet.md).",
    add_arguments=add_arguments,
    run=run,
    only_reads=lambda options: options.what != "ingest",
)
