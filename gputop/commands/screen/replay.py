"""``gputop replay``: the screen over a recording."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from gputop.api.reading import open_file, understood
from gputop.commands.command import Command
from gputop.commands.flags import add_alerts, add_file, add_filters, add_looks, add_once, check_once
from gputop.commands.moment import mark_index
from gputop.commands.screen.looks import preferences, startup_of
from gputop.commands.words import bounded
from gputop.playback.player import ReplayFeed, frame_at
from gputop.process.terminal import require_terminal
from replay.reader import SessionReader

if TYPE_CHECKING:
    from gputop.analysis.window import Verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="FILE")
    parser.add_argument(
        "--at",
        metavar="T",
        help="start time: seconds, HH:MM:SS (the recording machine's zone) or end (default of --once)",
    )
    parser.add_argument(
        "--speed", type=bounded(0.25, 64, ""), default=1.0, metavar="X", help="playing speed (1)"
    )
    add_looks(parser)
    add_alerts(parser)
    add_filters(parser)
    add_once(parser, "print one frame as text and exit")


def replay(options: argparse.Namespace) -> int:
    with closing(open_file(options.file)) as reader:
        if not options.once:
            require_terminal()
        index = mark_index(reader, options.at or ("end" if options.once else "0"))
        return _once(options, reader, index) if options.once else _screen(options, reader, index)


def _once(options: argparse.Namespace, reader: SessionReader, index: int) -> int:
    from gputop.commands.screen.text import print_frame

    with understood(options.file):
        frame, verdict = frame_at(reader, index), _verdict_at(reader, index)
    print_frame(options, frame, verdict)
    return 0


def _screen(options: argparse.Namespace, reader: SessionReader, index: int) -> int:
    from gputop.ui.run import run_app

    preferred = preferences()
    with understood(options.file):
        feed = ReplayFeed(reader, index, options.speed, playing=options.at is None)
    feed.start(explain=False)
    try:
        return run_app(feed, startup_of(options, preferred, options.file, mode="replay"), seen=feed.explain)
    finally:
        feed.close()


def _verdict_at(reader: SessionReader, index: int) -> Verdict | None:
    from gputop.analysis.live import ReplayExplainer

    if reader.header.get("calls_observed") is False:
        return None
    return ReplayExplainer(reader).verdict_at(index)


COMMAND = Command(
    description="Show a recording in the screen, with pause, steps and speed. Needs no GPU, root or bcc.",
    add_arguments=add_arguments,
    run=replay,
    check=check_once,
    only_reads=lambda options: bool(options.once),
    has_screen=lambda options: not options.once,
)
