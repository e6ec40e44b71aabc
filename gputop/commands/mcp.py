"""``gputop mcp``: recordings, asked by an assistant."""

from __future__ import annotations

import argparse
import logging

from gputop.ask.bounds import bound_memory
from gputop.ask.catalogue import Catalogue
from gputop.ask.server import server_of
from gputop.commands.command import Command, always
from gputop.commands.flags import add_file
from gputop.commands.version import program_version
from gputop.commands.words import bounded
from gputop.process.say import say

HOST = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what can be typed."""
    add_file(
        parser, "files", nargs="+", metavar="FILE|FOLDER", help="what may be asked; nothing else is opened"
    )
    parser.add_argument(
        "--http",
        type=bounded(1, 65535, "(a port)"),
        metavar="PORT",
        help=f"answer at http://{HOST}:PORT/mcp to anybody on this machine, instead of on standard input",
    )


def mcp(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    server = server_of(Catalogue(options.files), program_version())
    logging.getLogger("mcp").setLevel(logging.WARNING)
    if options.own_process:
        bound_memory()
    if options.http is None:
        server.run("stdio")
        return 0
    port = int(options.http)
    say(f"http://{HOST}:{port}/mcp answers to anybody on this machine, until an interrupt")
    server.run("streamable-http", host=HOST, port=port)
    return 0


COMMAND = Command(
    description="Let an assistant ask recordings, by the Model Context Protocol: on standard input and "
    "output, or on a port of this machine. All tools only read.",
    add_arguments=add_arguments,
    run=mcp,
    only_reads=always,
)
