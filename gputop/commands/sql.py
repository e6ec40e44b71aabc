"""``gputop sql``: a question to a recording in SQL."""

from __future__ import annotations

import argparse

from gputop.ask.answers import answer_to_csv, answer_to_json, answer_to_text
from gputop.ask.bounds import bound_memory
from gputop.ask.database import Database
from gputop.commands.command import Command, always
from gputop.commands.flags import add_file
from gputop.commands.progress import Progress
from gputop.commands.words import bounded
from gputop.library.session import open_session
from gputop.process.say import put, say, show

_ROWS = 10_000
_SECONDS = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what can be typed."""
    parser.add_argument("query", metavar="SELECT", help="one SELECT in DuckDB's SQL, in quotes")
    add_file(parser, "file", metavar="FILE")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON: columns, rows, more")
    shape.add_argument("--csv", action="store_true", help="print CSV")
    parser.add_argument(
        "--limit",
        type=bounded(1, 1e8, "rows"),
        default=_ROWS,
        metavar="N",
        help="print at most so many rows (10000)",
    )
    parser.add_argument(
        "--timeout",
        type=bounded(0.1, 86400, "s"),
        default=_SECONDS,
        metavar="S",
        help="give up after so many seconds (60)",
    )


def sql(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    if options.own_process:
        bound_memory()
    with open_session(options.file) as session, Progress("reading") as progress:
        database = Database(session, progress)
    try:
        answer = database.query(options.query, int(options.limit), options.timeout)
    finally:
        database.close()
    if options.json:
        put(answer_to_json(answer))
    elif options.csv:
        put(answer_to_csv(answer))
    else:
        show(answer_to_text(answer))
    if answer.more:
        say(f"these are the first {len(answer.rows)} rows: --limit takes more")
    return 0


COMMAND = Command(
    description="Answer a question about a recording in SQL. Its tables are those of gputop export "
    "(docs/exchange.md): sessions, processes, threads, calls, slices, stacks, gpu_samples, gaps, "
    "activities, findings; SHOW TABLES and DESCRIBE calls tell them. Nothing else can be read, and "
    "nothing written.",
    add_arguments=add_arguments,
    run=sql,
    only_reads=always,
)
