"""``gputop dump``: the daemon's last minutes as a recording."""

from __future__ import annotations

import argparse
import shlex
import time

from gputop.commands.command import Command
from gputop.commands.flags import add_output, add_socket
from gputop.commands.words import bounded
from gputop.errors import CommandError
from gputop.files.output_files import refuse_existing
from gputop.format import format_bytes, format_count
from gputop.process.child import behind_sudo
from gputop.process.stdio import print_message
from gputop.serve.clients import wire
from gputop.serve.clients.client import Connection
from probes.ebpf.loader import ProbeError
from replay.coding.file_format import SessionError
from replay.writer import SessionWriter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    add_output(parser, "FILE", "the recording to write (gputop-DATE.msgpack)", required=False)
    parser.add_argument(
        "--seconds",
        type=bounded(1, 86400, "s"),
        default=120.0,
        metavar="S",
        help="seconds to go back (120); up to 30 more where they prove more",
    )


def dump(options: argparse.Namespace) -> int:
    path = options.output or time.strftime("gputop-%Y%m%d-%H%M%S.msgpack")
    refuse_existing(path, force=options.force)
    connection = Connection(options.socket, "snap", seconds=options.seconds)
    user = behind_sudo()
    owner = (user.uid, user.gid) if user else None
    writer: SessionWriter | None = None
    done = False
    try:
        for message in connection.messages():
            if message.get("k") == "header":
                header = dict(message["data"])
                private = bool(header.get("private"))
                writer = SessionWriter(path, header, private=private, owner=owner, overwrite=options.force)
            elif message.get("k") == "items" and writer is not None:
                for item in wire.items_of(message["chunks"]):
                    writer.write(item)
            done |= message.get("k") == "done"
        if writer is None:
            raise CommandError("the daemon observed nothing in that time: it has just started")
        if not done:
            raise CommandError(f"the daemon ended meanwhile; the part before is in {path}")
    except (ProbeError, SessionError, wire.WireError) as error:
        raise CommandError(str(error)) from error
    finally:
        connection.close()
        if writer is not None:
            writer.close()
    size, events = format_bytes(writer.size_bytes), format_count(writer.events)
    print_message(
        f"{path}: {events} events, {size}; see why the GPU waited with: gputop explain {shlex.quote(path)}"
    )
    return 0


COMMAND = Command(
    description="Write the last minutes of your own processes, as observed by the daemon (gputop serve), to "
    "a recording.",
    add_arguments=add_arguments,
    run=dump,
)
