"""``gputop web``: the screen in a browser."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from functools import partial
from tempfile import TemporaryDirectory

from gputop.api.reading import open_file
from gputop.commands.command import Command
from gputop.commands.flags import add_file
from gputop.commands.screen.watch import SHARE
from gputop.commands.words import bounded, pids
from gputop.errors import CommandError, install_command
from gputop.process.isolation import isolated
from gputop.process.stdio import print_message
from gputop.serve.clients.wire import SOCKET

PORT = 8000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", nargs="?", metavar="FILE", help="a recording; without FILE: live")
    parser.add_argument(
        "--pid",
        type=pids,
        action="extend",
        metavar="PID[,PID]",
        help="live: watch these processes and their descendants",
    )
    parser.add_argument(
        "--socket",
        nargs="?",
        const=SOCKET,
        metavar="PATH",
        help=f"show the daemon's data, like gputop attach ({SOCKET})",
    )
    parser.add_argument("--simgpu", action="store_true", help="live: use the simulated GPU's NVML")
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        help="address to listen on (a new 127.x.y.z each time; 127.0.0.1 behind ssh and in WSL); the "
        "connection is not encrypted",
    )
    parser.add_argument(
        "--port",
        type=bounded(0, 65535, "(a port)"),
        default=PORT,
        metavar="N",
        help=f"port ({PORT}); 0: any free one",
    )
    parser.add_argument(
        "--allow-root",
        action="store_true",
        help="run as root, as in a container: anyone with the address sees what root sees",
    )


def check(options: argparse.Namespace) -> None:
    """Raise CommandError for root, whose screen no browser may control, and for flags that do not combine."""
    if os.geteuid() == 0 and not options.allow_root:
        raise CommandError(
            "gputop web does not run as root, since a browser would control it: run gputop web as yourself. "
            "For root's view: sudo gputop record -o session.msgpack, then: gputop web session.msgpack. "
            "Where root is the only user, as in a container: --allow-root"
        )
    if options.file is not None and options.pid:
        raise CommandError("--pid is for the live screen: leave it or FILE out")
    if options.file is not None and options.simgpu:
        raise CommandError("--simgpu is for the live screen: leave it or FILE out")
    if options.socket is not None and (options.file is not None or options.pid or options.simgpu):
        raise CommandError("--socket shows the daemon's data: leave FILE, --pid and --simgpu out")
    if options.host in ("0.0.0.0", "::", ""):
        raise CommandError(f"--host {options.host}: name an address of this machine that browsers can reach")


def web(options: argparse.Namespace) -> int:
    try:
        from gputop.web.guard import Guard, own_host
        from gputop.web.screens import SOCKET_NAME, Observation
        from gputop.web.web_server import WebServer
    except ImportError as error:
        raise CommandError(f"textual-serve is not installed: {install_command('web')}") from error
    if options.file is not None:
        open_file(options.file).close()  # raises here, not in the browser
    host = options.host or own_host()
    try:
        listening = socket.create_server(
            (host, int(options.port)),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        )
    except OSError as error:
        raise CommandError(
            f"cannot listen on {host}:{int(options.port)} ({error.strerror or error}): "
            "choose another --port, or 0 for any free one"
        ) from error
    with listening:
        guard = Guard(host, listening.getsockname()[1])
        print_message(f"open {guard.address}")
        print_message("anyone with this address can view the screen until ^C; it is read-only")
        if options.file is not None or options.socket is not None:
            WebServer(_words(options), guard).serve_on(listening)
            return 0
        with TemporaryDirectory(prefix="gputop-web-") as folder:
            WebServer(
                _attached(f"{folder}/{SOCKET_NAME}", "--title", "gputop web"),
                guard,
                lambda: Observation(partial(_observing, options), folder),
            ).serve_on(listening)
    return 0


def _words(options: argparse.Namespace) -> list[str]:
    """Return the command whose screen is shown."""
    if options.file is not None:
        return isolated("gputop", "replay", options.file, name=sys.argv[0])
    return _attached(options.socket)


def _attached(path: str, *more: str) -> list[str]:
    return isolated("gputop", "attach", "--socket", path, *more, name=sys.argv[0])


def _observing(options: argparse.Namespace, path: str) -> list[str]:
    """Return the command that observes for all screens."""
    chosen = ["--pid", ",".join(map(str, options.pid))] if options.pid else []
    simulated = ["--simgpu"] if options.simgpu else []
    return isolated("gputop", SHARE, path, *simulated, *chosen, name=sys.argv[0])


COMMAND = Command(
    description="Show the screen in a browser, over a recording or live, with your own permissions. "
    "Anyone with the printed address can view it; it is read-only.",
    add_arguments=add_arguments,
    run=web,
    check=check,
)
