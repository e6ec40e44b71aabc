"""``gputop demo``: the screen over a demo program on the simulated GPU, or the program alone."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from gputop.commands.command import Command
from gputop.commands.flags import add_as_root, add_duration, add_probes, add_screen
from gputop.demo.stories import STORIES
from gputop.demo.workload import ALONE, words_of
from gputop.errors import USAGE, CommandError
from gputop.process.stdio import put
from gputop.process.terminal import has_terminal
from gputop.simgpu import library_build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        type=_story,
        choices=tuple(STORIES),
        help="the demo program; without NAME: list them",
    )
    parser.add_argument(ALONE, action="store_true", help="run the demo program without the screen")
    add_duration(parser, 1e9, f"with {ALONE}: end after S seconds; with --once: seconds to observe (2)")
    add_as_root(parser)
    add_probes(parser)
    add_screen(parser)


def _story(name: str) -> str:
    if name not in STORIES:
        raise argparse.ArgumentTypeError(f"there is no demo {name!r}: use one of {', '.join(STORIES)}")
    return name


def check(options: argparse.Namespace) -> None:
    options.once |= options.json
    if options.alone and (options.once or options.record):
        raise CommandError(f"{ALONE} shows and records nothing: drop it, or drop --once and --record", USAGE)
    if options.alone and not options.name:
        raise CommandError(f"{ALONE} needs the NAME of a demo: gputop demo lists them", USAGE)
    if options.duration is not None and not (options.once or options.alone):
        raise CommandError(f"--duration goes with {ALONE} or --once", USAGE)


def demo(options: argparse.Namespace) -> int:
    """List the demos, show one, or become one; return the exit status."""
    if not options.name:
        return _list()
    if options.alone:
        _become(options.name, options.duration)
    return _show(options)


def _list() -> int:
    width = max(map(len, STORIES))
    for story in STORIES.values():
        put(f"{story.name:<{width}}  {story.title}\n")
    return 0


def _show(options: argparse.Namespace) -> int:
    """The live screen, with the workload as its command."""
    typed = f"gputop demo {options.name}"
    if not options.once and not has_terminal():
        raise CommandError(
            f"the screen needs a terminal: {typed} --once prints one frame, {typed} {ALONE} runs just the "
            "program"
        )
    from gputop.commands.screen.watch import live

    options.command, options.title = words_of(options.name), typed
    options.simgpu, options.pid = True, None
    return live(options)


def _become(name: str, duration_s: float | None) -> NoReturn:
    environment = library_build.environment(os.environ)
    words = words_of(name, duration_s)
    if sys.stderr.isatty():  # not under gputop itself
        sys.stderr.write("gputop demo: to watch it, in another terminal: gputop --simgpu\n")
    # execve, since the loader reads its search path at the start
    os.execve(words[0], words, environment)


COMMAND = Command(
    usage=(
        "gputop demo",
        "gputop demo NAME [flags]",
        "gputop demo NAME --alone [--duration S]",
    ),
    description="Show the screen over a demo program on the simulated GPU. Each demo has one common "
    "performance fault. Without NAME: list them.",
    add_arguments=add_arguments,
    run=demo,
    check=check,
    has_screen=lambda options: bool(options.name) and not (options.alone or options.once),
)
