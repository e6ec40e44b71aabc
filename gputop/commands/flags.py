"""Flags that several commands share."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from gputop.commands.words import bounded, pids, ring
from gputop.errors import USAGE, CommandError

SESSION_FILE = "names_session_file"  # of the arguments that a shell completes by files


def add_file(parser: ArgumentParser, *names: str, **keywords: Any) -> None:
    """Adds an argument that is the name of a session file; as ``add_argument``."""
    setattr(parser.add_argument(*names, **keywords), SESSION_FILE, True)


def add_copy(parser: ArgumentParser) -> None:
    """Adds a recording and the new file that is made of it: the second word, or ``-o`` as elsewhere."""
    add_file(parser, "file", metavar="FILE")
    add_file(parser, "second", metavar="OUT", nargs="?", help="the same as -o")
    add_file(parser, "-o", "--output", metavar="OUT", help="the new file; must not exist yet")


def check_copy(options: Namespace) -> None:
    """Settles where the new file is to lie: ``options.output``.

    Raises:
        CommandError: It is named twice, or not at all.
    """
    if options.second is not None and options.output is not None:
        raise CommandError("the new file is named twice: as a word and with -o", USAGE)
    options.output = options.second or options.output
    if options.output is None:
        raise CommandError("the new file has no name: give it as the second word, or with -o", USAGE)


def add_json(parser: ArgumentParser) -> None:
    """Adds ``--json``, for what is printed."""
    parser.add_argument("--json", action="store_true", help="print JSON (docs/json.md)")


def add_looks(parser: ArgumentParser) -> None:
    """Adds how frames are drawn."""
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII only")


def add_once(parser: ArgumentParser, once: str) -> None:
    """Adds one frame in place of the screen.

    Args:
        parser: Of the command.
        once: What ``--once`` does.
    """
    parser.add_argument("--once", action="store_true", help=once)
    parser.add_argument("--json", action="store_true", help="with --once: print the frame as JSON")


def add_target(parser: ArgumentParser) -> None:
    """Adds what is observed, and how."""
    parser.add_argument(
        "--pid", type=pids, metavar="PID[,PID]", help="watch these processes and their descendants"
    )
    add_probes(parser)
    parser.add_argument(
        "--simgpu", action="store_true", help="use the simulated GPU's NVML, and its CUDA for CMD"
    )


def add_probes(parser: ArgumentParser) -> None:
    """Adds how what is chosen already is observed."""
    parser.add_argument(
        "--rate", type=bounded(0.5, 20, "Hz"), default=4.0, metavar="HZ", help="frames per second (4)"
    )
    parser.add_argument(
        "--ring", type=ring, default=16, metavar="MIB", help="ring buffer for events, a power of two (16)"
    )
    parser.add_argument(
        "--lines",
        choices=("all", "costly", "off"),
        help="calls whose line is looked for: all, those that may be slow (costly, the default), "
        "or none (off, the default of --once without --record)",
    )
    parser.add_argument(
        "--private", action="store_true", help="name no process outside the watched ones in a recording"
    )
    parser.add_argument(
        "--as-root", action="store_true", help="run CMD as root instead of the user who called sudo"
    )


def add_screen(parser: ArgumentParser) -> None:
    """Adds what the live screen takes, beside what is observed."""
    parser.set_defaults(rate=None)  # the preferences may say it
    add_looks(parser)
    parser.add_argument("--readonly", action="store_true", help="the screen can send no signals")
    add_file(parser, "--record", metavar="FILE", help="write what is seen to a session file")
    add_once(parser, "observe, print one frame as text, exit")


def add_duration(parser: ArgumentParser, most_s: float, about: str) -> None:
    """Adds ``--duration``.

    Args:
        parser: Of the command.
        most_s: The longest.
        about: What it does.
    """
    parser.add_argument("--duration", type=bounded(0.1, most_s, "s"), metavar="S", help=about)


def file_or_now(name: str, options: Namespace) -> None:
    """Raises CommandError where a command is given a recording and something of the present as well."""
    if options.file and (options.command or options.duration):
        raise CommandError(f"{name} takes a FILE, or what to observe now, not both", USAGE)
