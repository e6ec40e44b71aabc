"""Command line: what can be typed, checked as far as words alone can tell."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from gputop.commands.words import bounded, pids, ring
from gputop.errors import FAILURE, USAGE, CommandError, GputopError, OutputError
from gputop.process import failures
from gputop.process.interrupts import Interrupted, end_at_once
from gputop.process.say import put, say, silence

_COMMANDS = ("explain", "diff", "record", "replay", "stats", "stream", "check", "demo", "simgpu")

_DESCRIPTION = """\
Why is the GPU idle? gputop shows, for each process, its CUDA call latencies, context switches and
GPU utilisation, live, without any change to the program (eBPF uprobes and scheduler tracepoints).
"""
_EPILOG = """\
commands:
  gputop explain FILE        why the GPU waits; also: explain -- CMD, explain --pid N
  gputop diff BEFORE AFTER   whether a change helped, from two recordings
  gputop record -o FILE      record without a screen
  gputop replay FILE         the same screen over a recording
  gputop stats FILE          totals of a whole recording
  gputop stream --jsonl      one frame a line as JSON, until stopped
  gputop check               what can be observed here, and what is missing
  gputop demo [NAME]         a workload on the simulated GPU; --list shows them
  gputop simgpu              build the simulated GPU, print its directory
  gputop COMMAND --help      more about each

examples:
  sudo gputop                            the whole machine
  sudo gputop --pid 1234                 one process and its children
  sudo gputop -- python train.py         start a program and watch it from its first call
  sudo gputop --simgpu -- gputop demo    without a GPU
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)", USAGE)


def program_version() -> str:
    """The installed version."""
    try:
        return version("gputop")
    except PackageNotFoundError:
        return "unknown (not installed)"
    except OSError as error:
        return f"unknown ({error.strerror})"


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pid", type=pids, metavar="PID[,PID]", help="watch these processes and their descendants"
    )
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
        "--simgpu", action="store_true", help="use the simulated GPU's NVML, and its CUDA for CMD"
    )
    parser.add_argument(
        "--as-root", action="store_true", help="run CMD as root instead of the user who called sudo"
    )


def _add_looks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII only")


def _live_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gputop",
        usage="gputop [flags] [-- CMD ARGS…]  |  gputop COMMAND …",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gputop {program_version()}")
    _add_target(parser)
    parser.set_defaults(rate=None)  # the preferences may say it
    _add_looks(parser)
    parser.add_argument("--readonly", action="store_true", help="the screen can send no signals")
    parser.add_argument("--record", metavar="FILE", help="write what is seen to a session file")
    parser.add_argument("--once", action="store_true", help="observe, print one frame as text, exit")
    parser.add_argument("--json", action="store_true", help="with --once: print the frame as JSON")
    parser.add_argument(
        "--duration",
        type=bounded(0.1, 86400, "s"),
        metavar="S",
        help="with --once: seconds to observe (2)",
    )
    return parser


def _explain_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gputop explain",
        usage="gputop explain FILE [flags]  |  gputop explain [flags] [-- CMD ARGS…]",
        description="Say how long the GPU was idle, why, and what to change. "
        "Status 0: nothing is lost, 3: something is, 1: an error.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a recording; without one, the present")
    _add_target(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (docs/json.md)")
    parser.add_argument(
        "--duration",
        type=bounded(0.1, 86400, "s"),
        metavar="S",
        help="without FILE: seconds to observe (10)",
    )
    for name, where in (("from", "since"), ("to", "until")):
        parser.add_argument(
            f"--{name}",
            dest=where,
            type=bounded(0, 1e9, "s"),
            metavar="T",
            help=f"only {name} T seconds after the start of FILE",
        )
    parser.add_argument(
        "--fail-over",
        type=bounded(0, 100, "%"),
        metavar="PERCENT",
        help="status 3 only when more than this part of the time is lost",
    )
    return parser


def _diff_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gputop diff",
        description="Compare two recordings of a program, before and after a change: its steps, its calls "
        "and switches, and what the GPU waits for. Status 0, whatever the outcome; 1: an error.",
    )
    parser.add_argument("before", metavar="BEFORE", help="a recording from before the change")
    parser.add_argument("after", metavar="AFTER", help="one from after it; it may be of another length")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/json.md)")
    return parser


def _record_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gputop record",
        usage="gputop record -o FILE [flags] [-- CMD ARGS…]",
        description="Record a session file without a screen, until CMD ends, S seconds passed, or SIGINT.",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the session file to write")
    _add_target(parser)
    parser.add_argument(
        "--duration",
        type=bounded(0.1, 1e9, "s"),
        metavar="S",
        help="end the recording (not CMD) after S seconds",
    )
    return parser


def _replay_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gputop replay",
        description="Show a recording in the same screen. Needs no GPU, no root and no bcc.",
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--at",
        metavar="T",
        help="seconds from the start, HH:MM:SS in the recording machine's zone, or end (default of --once)",
    )
    parser.add_argument(
        "--speed", type=bounded(0.25, 64, ""), default=1.0, metavar="X", help="playing speed (1)"
    )
    _add_looks(parser)
    parser.add_argument("--once", action="store_true", help="print one frame as text, exit")
    parser.add_argument("--json", action="store_true", help="with --once: print the frame as JSON")
    return parser


def _stats_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gputop stats", description="Totals of a whole recording.")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/json.md)")
    return parser


def _stream_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gputop stream",
        usage="gputop stream --jsonl [FILE]  |  gputop stream --jsonl [flags] [-- CMD ARGS…]",
        description="Print each frame as a line of JSON (docs/json.md) until stopped, or until CMD ends.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a recording; without one, the present")
    parser.add_argument("--jsonl", action="store_true", required=True, help="a JSON object a line")
    _add_target(parser)
    parser.add_argument(
        "--duration", type=bounded(0.1, 1e9, "s"), metavar="S", help="without FILE: end after S seconds"
    )
    return parser


def _check_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gputop check",
        description="Say what can be observed here, and why not. Status 0 when live tracing works, else 1.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON (docs/json.md)")
    parser.add_argument("--pid", type=pids, metavar="PID[,PID]", help="only libraries of these processes")
    parser.add_argument("--simgpu", action="store_true", help="look at the simulated GPU's libraries")
    parser.add_argument(
        "--call-all",
        action="store_true",
        help="call a function also of libraries that others than root may have written, as nobody",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="list every function that is traced")
    return parser


def _demo_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gputop demo",
        description="Run a workload on the simulated GPU. Watch it with: gputop --simgpu -- gputop demo NAME",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="which one (--list shows them)")
    parser.add_argument("--list", action="store_true", help="list the workloads")
    parser.add_argument(
        "--duration",
        type=bounded(0.1, 1e9, "s"),
        metavar="S",
        help="end after S seconds (default: until stopped)",
    )
    return parser


def _simgpu_parser() -> argparse.ArgumentParser:
    return _Parser(
        prog="gputop simgpu",
        description="Build the simulated CUDA and NVML libraries if needed; "
        "the last line is their directory. Any CUDA program runs on them with LD_LIBRARY_PATH set to it.",
    )


_PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "live": _live_parser,
    "explain": _explain_parser,
    "diff": _diff_parser,
    "record": _record_parser,
    "replay": _replay_parser,
    "stats": _stats_parser,
    "stream": _stream_parser,
    "check": _check_parser,
    "demo": _demo_parser,
    "simgpu": _simgpu_parser,
}


def parse(arguments: Sequence[str]) -> tuple[str, argparse.Namespace]:
    """(command, options); options of live and record have ``command``: the words after ``--``.

    Raises:
        CommandError: Words that make no sense; ``status`` is 2.
    """
    words = list(arguments)
    tail: list[str] | None = None
    if "--" in words:
        cut = words.index("--")
        words, tail = words[:cut], words[cut + 1 :]
    name = words.pop(0) if words and words[0] in _COMMANDS else "live"
    if name == "live" and words and not words[0].startswith("-"):
        raise CommandError(
            f"there is no command {words[0]!r}: use one of {', '.join(_COMMANDS)}, "
            f"or gputop -- {words[0]} … to start a program",
            USAGE,
        )
    options = _PARSERS[name]().parse_args(words)
    if name in ("live", "record", "explain", "stream"):
        if tail is not None and not tail:
            raise CommandError("no command after --", USAGE)
        if tail and options.pid:
            raise CommandError("--pid and a command after -- exclude each other", USAGE)
        options.command = tail or []
        if name in ("explain", "stream") and options.file and (options.command or options.duration):
            raise CommandError(f"{name} takes a FILE, or what to observe now, not both", USAGE)
        if name == "explain" and not options.file and (options.since, options.until) != (None, None):
            raise CommandError("--from and --to go with a FILE", USAGE)
    elif tail is not None:
        raise CommandError(f"gputop {name} takes no command after --", USAGE)
    if getattr(options, "json", False) and name in ("live", "replay"):
        options.once = True
    if name == "live" and options.duration is not None and not options.once:
        raise CommandError("--duration goes with --once; the screen runs until you quit", USAGE)
    return name, options


def run(arguments: Sequence[str], *, own_process: bool = False) -> int:
    """Parses and runs; turns every expected failure into one sentence and an exit status.

    Args:
        arguments: The words behind the program's name.
        own_process: The process is there for this command alone, which may give up its rights for ever.
    """
    failures.listen()
    try:
        name, options = parse(arguments)
        options.own_process = own_process
        status = _dispatch(name, options)
        try:
            put("")  # what is not written yet
        except OutputError:
            if status == 0:
                raise
            silence(1)  # the terminal has gone, say: why the command ended is told already
        return status
    except OutputError as error:
        silence(1)
        say(str(error))
        return error.status
    except GputopError as error:
        say(str(error))
        return error.status
    except KeyboardInterrupt as interrupt:
        return interrupt.status if isinstance(interrupt, Interrupted) else 130
    except BrokenPipeError:
        silence(1)  # the reader of our output went away
        return 128 + signal.SIGPIPE
    except Exception as error:
        failures.tell(error)
        return FAILURE


def _dispatch(name: str, options: argparse.Namespace) -> int:
    if name in ("diff", "stats") or (getattr(options, "file", None) and getattr(options, "once", True)):
        end_at_once()  # it only reads
    # each command's imports are its own: `gputop stats` needs no screen, `gputop simgpu` no numpy
    status: int = getattr(import_module(f"gputop.commands.{name}"), name)(options)
    return status
