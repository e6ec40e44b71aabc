"""``gputop sql``: a question to a recording in SQL."""

from __future__ import annotations

import argparse

from gputop.api.holes import about_holes
from gputop.api.session import open_session
from gputop.commands.command import Command, always
from gputop.commands.flags import add_file
from gputop.commands.progress import ProgressBar
from gputop.commands.recordings.sql_output import add_answer, answered
from gputop.process.say import say
from gputop.query.database import Database


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="SELECT", help="one SELECT in DuckDB's SQL, in quotes")
    add_file(parser, "file", metavar="FILE")
    add_answer(parser)


def sql(options: argparse.Namespace) -> int:
    def opened() -> Database:
        with open_session(options.file) as session, ProgressBar("reading") as progress:
            database = Database(session, progress)
            for text in about_holes(session):
                say(text)
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
