"""``gputop report``: one HTML page about a recording."""

from __future__ import annotations

import argparse
import os

from gputop.api.session import open_session
from gputop.commands.command import Command
from gputop.commands.flags import add_file, add_output
from gputop.commands.progress import ProgressBar
from gputop.files.output_files import new_file, refuse_existing
from gputop.format import format_bytes
from gputop.process.stdio import print_message
from gputop.report_page.report_html import report_page


def write_page(options: argparse.Namespace, page: str) -> None:
    """Write an HTML page to ``options.output``."""
    text = page.encode()
    with new_file(options.output, force=options.force) as file:
        file.write(text)
    print_message(
        f"{options.output}: {format_bytes(len(text))}, self-contained; opens in any browser, offline too"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="FILE")
    add_output(parser, "PAGE", "the page")


def report(options: argparse.Namespace) -> int:
    refuse_existing(options.output, force=options.force)
    with open_session(options.file) as session, ProgressBar("reading") as progress:
        page = report_page(session, os.path.basename(options.file), progress)
    write_page(options, page)
    return 0


COMMAND = Command(
    description="Write one HTML page about a recording: verdict, timeline, findings, latencies, lines, "
    "tables. It works offline.",
    add_arguments=add_arguments,
    run=report,
)
