"""``gputop simgpu``: builds the simulated GPU and prints its folder."""

from __future__ import annotations

import argparse
import sys

from gputop.commands.command import Command
from gputop.format import escape_text
from gputop.process.stdio import put
from gputop.simgpu import library_build


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """There are none."""


def simgpu(_options: argparse.Namespace) -> int:
    directory = library_build.ensure_built()
    if sys.stdout.isatty():
        audit = directory / library_build.AUDIT
        words = f"run a CUDA program on it: LD_LIBRARY_PATH={directory} LD_AUDIT={audit} PROGRAM"
        put(f"{escape_text(words)}\n{escape_text(str(directory))}\n")
    else:
        put(f"{directory}\n")
    return 0


COMMAND = Command(
    description="Build the simulated CUDA and NVML libraries if needed, and print their "
    "folder on the last line. CUDA programs use them with LD_LIBRARY_PATH set to it.",
    add_arguments=add_arguments,
    run=simgpu,
)
