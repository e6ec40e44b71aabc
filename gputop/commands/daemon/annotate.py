"""``gputop annotate``: names a range of an observed program."""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import socket
import termios
import time
from array import array

from gputop.commands.command import Command
from gputop.errors import CommandError
from probes.inside.annotation_socket import VARIABLE, WELL_KNOWN, address_of
from probes.inside.annotations import LONGEST_NAME, message

_ACTS = ("begin", "end", "mark")
_FULL_S = 0.25  # longest wait for a full queue, which is read within some ms
_READ_S, _POLL_S = 2.0, 0.005  # where gputop waits for a CPU


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("act", choices=_ACTS, help="begin or end a range, or mark a moment")
    parser.add_argument(
        "name", metavar="NAME", type=_name, help=f"the name, at most {LONGEST_NAME} characters"
    )
    parser.add_argument(
        "--pid",
        type=int,
        default=None,
        metavar="PID",
        help="the process in this range, with its descendants (the process that runs this command)",
    )
    parser.add_argument(
        "--socket",
        default=os.environ.get(VARIABLE) or WELL_KNOWN,
        metavar="ADDRESS",
        help=f"where gputop listens (${VARIABLE}, else {WELL_KNOWN})",
    )


def _name(text: str) -> str:
    if not 0 < len(text) <= LONGEST_NAME:
        raise argparse.ArgumentTypeError(f"a name has 1 to {LONGEST_NAME} characters")
    return text


def _wait_until_read(sender: socket.socket) -> None:
    """Wait for the reader: in a container, a PID is resolved through this process."""
    until = time.monotonic() + _READ_S
    unread = array("i", [1])
    while unread[0] and time.monotonic() < until:
        fcntl.ioctl(sender, termios.TIOCOUTQ, unread)
        time.sleep(_POLL_S)


def annotate(options: argparse.Namespace) -> int:
    pid = os.getppid() if options.pid is None else options.pid
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_FULL_S)
        try:
            sender.sendto(message(options.act, options.name, pid=pid), address_of(options.socket))
            _wait_until_read(sender)
        except (BlockingIOError, TimeoutError) as error:
            raise CommandError("gputop's queue of annotations is full: send fewer, or try again") from error
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ECONNREFUSED):
                raise CommandError(
                    f"cannot send to {options.socket}: {error.strerror}; --socket names another address"
                ) from error
            raise CommandError(
                f"no gputop listens at {options.socket}: start the program with gputop (gputop record -o "
                "FILE -- CMD), or run the daemon (sudo gputop serve)"
            ) from error
    return 0


COMMAND = Command(
    description="Name a range of an observed program, such as an epoch or a task: "
    "from a shell script, a scheduler's prolog or a callback. The protocol, JSON lines: docs/annotate.md.",
    add_arguments=add_arguments,
    run=annotate,
)
