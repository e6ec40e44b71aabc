"""``gputop sql``: queries a recording; printing and limits of results."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing

from gputop.api.holes import about_holes
from gputop.api.session import open_session
from gputop.commands.command import Command, always
from gputop.commands.flags import add_file
from gputop.commands.progress import ProgressBar
from gputop.commands.words import bounded
from gputop.process.stdio import print_message, put, show
from gputop.query.database import Database, LockedDatabase, QueryResult
from gputop.query.forked import bound_memory
from gputop.query.query_output import answer_to_csv, answer_to_json, answer_to_text

_ROWS = 10_000
_SECONDS = 60.0


def add_answer(parser: argparse.ArgumentParser) -> None:
    """Add the form and the limits of the result."""
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON")
    shape.add_argument("--csv", action="store_true", help="print CSV")
    parser.add_argument(
        "--limit",
        type=bounded(1, 1e8, "rows"),
        default=_ROWS,
        metavar="N",
        help="maximum number of rows to print (10000)",
    )
    add_timeout(parser)


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the time limit of a query."""
    parser.add_argument(
        "--timeout",
        type=bounded(0.1, 86400, "s"),
        default=_SECONDS,
        metavar="S",
        help="stop the query after this many seconds (60)",
    )


def answered(query: str, opened: Callable[[], LockedDatabase], options: argparse.Namespace) -> int:
    """Run the query within its limits and print the rows; return the exit status."""
    if options.own_process:
        bound_memory()
    with closing(opened()) as database:
        answer = database.query(query, int(options.limit), options.timeout)
    print_result(answer, options)
    return 0


def print_result(answer: QueryResult, options: argparse.Namespace) -> None:
    """Print a result in the requested form."""
    if options.json:
        put(answer_to_json(answer))
    elif options.csv:
        put(answer_to_csv(answer))
    else:
        show(answer_to_text(answer))
    if answer.more:
        print_message(f"only the first {len(answer.rows)} rows are shown: see --limit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="SELECT", help="one SELECT in DuckDB's SQL, in quotes")
    add_file(parser, "file", metavar="FILE")
    add_answer(parser)


def sql(options: argparse.Namespace) -> int:
    def opened() -> Database:
        with open_session(options.file) as session, ProgressBar("reading") as progress:
            database = Database(session, progress)
            for text in about_holes(session):
                print_message(text)
            return database

    return answered(options.query, opened, options)


COMMAND = Command(
    description="Query a recording in SQL. Its tables are those of gputop export "
    "(docs/exchange.md): sessions, processes, threads, calls, slices, stacks, gpu_samples, gaps, "
    "activities, findings; SHOW TABLES and DESCRIBE calls list them. The query can read "
    "nothing else and write nothing.",
    add_arguments=add_arguments,
    run=sql,
    only_reads=always,
)
