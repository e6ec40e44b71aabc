"""Flags that several commands share."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from typing import Any

from gputop.commands.words import bounded, gpus, pids, ring, rule
from gputop.errors import USAGE, CommandError

STACKS = ("all", "slow", "off")
SESSION_FILE = "names_session_file"  # marks arguments that a shell completes with files


def add_file(parser: ArgumentParser | _ArgumentGroup, *names: str, **keywords: Any) -> None:
    """Add an argument that names a file, like ``add_argument``."""
    setattr(parser.add_argument(*names, **keywords), SESSION_FILE, True)


def add_output(parser: ArgumentParser, metavar: str, about: str, *, required: bool = True) -> None:
    """Add ``-o``, the file to write, and ``--force``."""
    add_file(parser, "-o", "--output", required=required, metavar=metavar, help=about)
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")


def add_copy(parser: ArgumentParser) -> None:
    """Add a recording and the new file, which is a second argument or ``-o``."""
    add_file(parser, "file", metavar="FILE")
    add_file(parser, "second", metavar="OUT", nargs="?", help="the same as -o")
    add_output(parser, "OUT", "the new file", required=False)


def check_copy(options: Namespace) -> None:
    """Set ``options.output``.

    Raises:
        CommandError: The new file is named twice, or not at all.
    """
    if options.second is not None and options.output is not None:
        raise CommandError("the new file is named twice: as an argument and with -o", USAGE)
    options.output = options.second or options.output
    if options.output is None:
        raise CommandError("no name for the new file: add -o OUT", USAGE)


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON (docs/json.md)")


def add_memory(parser: ArgumentParser) -> None:
    """Add ``--memory``, in bytes."""
    parser.add_argument(
        "--memory",
        type=lambda text: int(bounded(0.3, 4096, "GiB")(text) * (1 << 30)),
        metavar="GIB",
        help="memory limit in GiB (1); larger recordings are read in parts",
    )


def add_socket(parser: ArgumentParser) -> None:
    from gputop.serve.clients.wire import SOCKET

    parser.add_argument("--socket", default=SOCKET, metavar="PATH", help=f"the daemon's socket ({SOCKET})")


def add_looks(parser: ArgumentParser | _ArgumentGroup) -> None:
    """Add how frames are drawn."""
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII only")


def add_alerts(parser: ArgumentParser | _ArgumentGroup) -> None:
    parser.add_argument(
        "--alert",
        dest="alerts",
        type=rule,
        action="append",
        default=[],
        metavar="RULE",
        help="alert when a rule holds, such as 'idle > 50 for 5m' or GpuWaits (docs/screen.md); repeatable",
    )


def add_filters(parser: ArgumentParser) -> None:
    """Add which GPUs and processes are shown."""
    group = parser.add_argument_group("what to show")
    group.add_argument(
        "--gpu", dest="only_gpu", type=gpus, metavar="N[,N]", help="only these GPUs, and processes on them"
    )
    for name, what in (("user", "user name"), ("name", "name"), ("container", "container id or name")):
        group.add_argument(
            f"--{name}",
            dest=f"only_{name}",  # since `gputop demo NAME` has a NAME of its own
            metavar="TEXT[,TEXT]",
            help=f"only processes whose {what} contains TEXT",
        )


def filter_text(options: Namespace) -> str:
    """Return these flags as a process filter, as typed on the screen."""
    words = ((name, getattr(options, f"only_{name}", None)) for name in ("user", "name", "container"))
    return " ".join(f'{name}:"{text}"' if " " in text else f"{name}:{text}" for name, text in words if text)


def shown_gpus(options: Namespace) -> frozenset[int]:
    """Return the GPUs of ``--gpu``; empty for all."""
    return frozenset(getattr(options, "only_gpu", None) or ())


def add_once(parser: ArgumentParser, once: str) -> None:
    """Add ``--once``, one frame in place of the screen, and ``--json``."""
    parser.add_argument("--once", action="store_true", help=once)
    parser.add_argument("--json", action="store_true", help="with --once: print the frame as JSON")


def check_once(options: Namespace) -> None:
    """Let ``--json`` imply ``--once``.

    Raises:
        CommandError: ``--alert`` with one frame, or ``--duration`` with the screen.
    """
    options.once |= options.json
    if options.once and options.alerts:
        raise CommandError("--alert goes with the screen or with gputop serve, not with --once", USAGE)
    if not options.once and getattr(options, "duration", None) is not None:
        raise CommandError("--duration goes with --once; the screen runs until you quit", USAGE)


def add_target(parser: ArgumentParser) -> None:
    """Add the processes to observe, and how."""
    group = parser.add_argument_group("what to observe")
    group.add_argument(
        "--pid",
        type=pids,
        action="extend",
        metavar="PID[,PID]",
        help="watch these processes and their descendants",
    )
    group.add_argument(
        "--simgpu", action="store_true", help="use the simulated GPU: its NVML, and its CUDA for CMD"
    )
    group.add_argument(
        "--inside",
        action="store_true",
        help="load a gputop library into CMD: exact times of kernels and copies (CUPTI), NVTX ranges",
    )
    add_as_root(group)
    add_probes(parser)


def add_as_root(parser: ArgumentParser | _ArgumentGroup) -> None:
    """Add ``--as-root``, for commands that start a program."""
    parser.add_argument(
        "--as-root", action="store_true", help="run CMD as root instead of the user who called sudo"
    )


def add_probes(parser: ArgumentParser, rate_hz: float = 4.0) -> None:
    parser.set_defaults(inside=False)
    group = parser.add_argument_group("how to observe")
    group.add_argument(
        "--rate",
        type=bounded(0.5, 20, "Hz"),
        default=rate_hz,
        metavar="HZ",
        help=f"frames per second ({rate_hz:g})",
    )
    group.add_argument(
        "--ring",
        type=ring,
        default=16,
        metavar="MIB",
        help="event ring buffer in MiB, a power of two (16)",
    )
    group.add_argument(
        "--stacks",
        dest="lines",
        choices=STACKS,
        help="CUDA calls whose stack and source line are recorded: all, slow ones such as syncs, copies and "
        "allocations (default), or none (off: the default with --once, without --record)",
    )
    former = {"costly": "slow"}  # of a value, and the flag's former name
    group.add_argument(
        "--lines", type=lambda text: former.get(text, text), choices=STACKS, help=argparse.SUPPRESS
    )
    group.add_argument(
        "--private", action="store_true", help="omit the names of processes that are not watched"
    )


def add_screen(parser: ArgumentParser) -> None:
    """Add the flags of the live screen, except those of what is observed."""
    parser.set_defaults(rate=None, share=None)  # the preferences may set the rate
    group = parser.add_argument_group("the screen")
    add_looks(group)
    add_alerts(group)
    add_filters(parser)
    group.add_argument("--readonly", action="store_true", help="send no signals from the screen")
    add_file(group, "--record", metavar="FILE", help="record to this file")
    group.add_argument("--force", action="store_true", help="replace the file of --record if it exists")
    add_once(parser, "print one frame as text and exit")


def add_duration(parser: ArgumentParser, most_s: float, about: str) -> None:
    parser.add_argument("--duration", type=bounded(0.1, most_s, "s"), metavar="S", help=about)


def file_or_now(name: str, options: Namespace) -> None:
    """Raise CommandError for a recording together with something to observe."""
    if options.file and (options.command or options.duration):
        raise CommandError(f"{name} takes either a FILE or something to observe, not both", USAGE)
