"""``gputop mcp``: recordings for an AI assistant."""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from gputop.commands.command import VERSION, Command
from gputop.commands.flags import add_file, add_socket
from gputop.commands.words import bounded
from gputop.errors import CommandError
from gputop.process.stdio import print_message
from gputop.query.catalogue import Catalogue
from gputop.query.daemon_recordings import Live
from gputop.query.forked import bound_memory
from gputop.query.mcp_server import Tool, server_of
from gputop.serve.clients.client import request_once

HOST = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(
        parser,
        "files",
        nargs="*",
        metavar="FILE|FOLDER",
        help="recordings that can be queried; nothing else is opened",
    )
    parser.add_argument(
        "--live", action="store_true", help="also query live data through gputop serve; not as root"
    )
    add_socket(parser)
    parser.add_argument("--lake", metavar="LAKE", help="also query this lake of gputop fleet ingest")
    parser.add_argument(
        "--http",
        type=bounded(1, 65535, "(a port)"),
        metavar="PORT",
        help=f"serve http://{HOST}:PORT/mcp to all users of this machine instead of standard input",
    )


def mcp(options: argparse.Namespace) -> int:
    with _live_data(options) as live:
        return _serve(options, live)


@contextmanager
def _live_data(options: argparse.Namespace) -> Iterator[Live | None]:
    """The daemon's data with ``--live``; its recordings are removed at the end.

    Raises:
        CommandError: This is root, or no daemon answers.
    """
    if not options.live:
        yield None
        return
    if os.geteuid() == 0:
        raise CommandError(
            "gputop mcp --live does not run as root, which sees all users' processes: start it as a user"
        )
    request_once(options.socket, "status")
    with tempfile.TemporaryDirectory(prefix="gputop-live-") as folder:
        yield Live(options.socket, folder)


def _serve(options: argparse.Namespace, live: Live | None) -> int:
    named = [*options.files, *([live.folder] if live is not None else [])]
    catalogue = Catalogue(named, none=options.lake is not None)
    server = server_of(catalogue, VERSION, live, _fleet(options.lake))
    logging.getLogger("mcp").setLevel(logging.WARNING)
    if options.own_process:
        bound_memory()
    if options.http is None:
        server.run("stdio")
        return 0
    port = int(options.http)
    print_message(f"http://{HOST}:{port}/mcp serves all users of this machine until ^C")
    # stateless, since any user of this machine could begin sessions without end
    server.run("streamable-http", host=HOST, port=port, stateless_http=True)
    return 0


def _fleet(lake: str | None) -> Tool | None:
    if lake is None:
        return None
    from gputop.fleet.tool import lake_tool  # needs duckdb

    return lake_tool(lake)


COMMAND = Command(
    description="Let an AI assistant query recordings through the Model Context Protocol, on standard input "
    "and output or on a local port. All tools are read-only; with --live, one of them records live data.",
    add_arguments=add_arguments,
    run=mcp,
    only_reads=lambda options: not options.live,  # else a folder is removed at the end
)
