"""``gputop redact``: writes a copy of a recording without names."""

from __future__ import annotations

import argparse

from gputop.api.session import open_session
from gputop.commands.command import Command
from gputop.commands.flags import add_copy, check_copy
from gputop.commands.progress import ProgressBar
from gputop.files.redaction import redact as write_redacted
from gputop.process.stdio import print_message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_copy(parser)


def redact(options: argparse.Namespace) -> int:
    with open_session(options.file) as session, ProgressBar("reading") as progress:
        count = write_redacted(session, options.output, progress, force=options.force)
    print_message(
        f"{options.output}: replaced {count} names of hosts, users, paths, commands and processes by "
        "pseudonyms"
    )
    return 0


COMMAND = Command(
    usage=("gputop redact FILE -o OUT",),
    description="Write a copy of a recording with pseudonyms for host, users, paths, command lines and "
    "unwatched processes. Times, calls, functions and findings stay.",
    add_arguments=add_arguments,
    run=redact,
    check=check_copy,
    intermixed=True,
)
