"""``gputop attach``: the screen over the daemon's data, without privileges."""

from __future__ import annotations

import argparse
import importlib
import time
from dataclasses import replace

from gputop.commands.command import Command
from gputop.commands.flags import (
    add_alerts,
    add_duration,
    add_filters,
    add_looks,
    add_once,
    add_socket,
    check_once,
)
from gputop.errors import CommandError
from gputop.process.interrupts import Interrupted, answering, finishing, heeding

ONCE_S = 2.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--title", default="attached to the daemon", help=argparse.SUPPRESS)
    add_looks(parser)
    add_alerts(parser)
    add_filters(parser)
    add_once(parser, "follow for a moment, print one frame as text and exit")
    add_duration(parser, 86400, f"with --once: seconds to follow ({ONCE_S:g})")


def attach(options: argparse.Namespace) -> int:
    return _once(options) if options.once else _screen(options)


def _once(options: argparse.Namespace) -> int:
    from gputop.analysis.window import Window
    from gputop.commands.observation import closing_after, interrupted_after
    from gputop.commands.screen.text import print_frame
    from gputop.engine.engine import Engine
    from gputop.serve.clients.client import RemoteSource
    from probes.ebpf.loader import ProbeError

    source = RemoteSource(options.socket)
    seconds = options.duration or ONCE_S
    engine, window = Engine(source.header, int((seconds + 1) * 1e9)), Window(source.header)
    seen, began = False, time.monotonic()
    with answering(lambda _number: source.close()) as came, closing_after(source, seconds):
        try:
            for item in source.items():
                window.feed(item)
                seen |= engine.feed(item)
        except ProbeError as error:
            if not came:
                raise CommandError(str(error)) from error
        finally:
            source.close()
    if not seen:
        raise CommandError("the daemon sent no frame in that time: try a longer --duration")
    frame = engine.frame()
    if came:
        note = interrupted_after(time.monotonic() - began)
        frame = replace(frame, problems=(note, *frame.problems))
    print_frame(options, frame, window.verdict())
    return 128 + came[0] if came else 0


def _screen(options: argparse.Namespace) -> int:
    from gputop.process.terminal import require_terminal

    require_terminal()
    from gputop.commands.screen.looks import preferences, startup_of
    from gputop.engine.own_memory import OwnMemory
    from gputop.playback.feeds import LiveFeed
    from gputop.serve.clients.client import RemoteSource
    from gputop.ui.run import run_app

    preferred = preferences()
    source = RemoteSource(options.socket)
    importlib.import_module("gputop.ui.app")
    feed = LiveFeed(source, memory=OwnMemory() if preferred.budget_percent else None)
    try:
        with heeding(lambda number: None):
            feed.start()
            rate_hz = float(source.header.get("rate_hz", 4.0))
            startup = startup_of(options, preferred, options.title, rate_hz=rate_hz, readonly=True)
            return run_app(feed, startup, ease=feed.ease)
    except Interrupted as interrupt:
        return interrupt.status
    finally:
        with finishing():
            feed.close()


COMMAND = Command(
    description="Show the screen over your own processes, as observed by the daemon (gputop serve), without "
    "privileges. It cannot send signals.",
    add_arguments=add_arguments,
    run=attach,
    check=check_once,
    has_screen=lambda options: not options.once,
)
