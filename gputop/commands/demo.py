"""``gputop demo``: a workload on the simulated GPU, to be watched."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from gputop.demo.stories import DEFAULT, STORIES
from gputop.errors import USAGE, CommandError
from gputop.process.isolation import isolated
from gputop.process.say import put
from gputop.simgpu import build


def demo(options: argparse.Namespace) -> int:
    """Lists the workloads, or becomes one; returns the exit status of the listing."""
    if options.list:
        _list()
        return 0
    return _become(options)


def _list() -> None:
    width = max(map(len, STORIES))
    for story in STORIES.values():
        default = " (default)" if story.name == DEFAULT else ""
        put(f"{story.name:<{width}}  {story.title}{default}\n")


def _become(options: argparse.Namespace) -> NoReturn:
    name = options.name or DEFAULT
    if name not in STORIES:
        raise CommandError(f"there is no demo {name!r}: use one of {', '.join(STORIES)}", USAGE)
    try:
        build.ensure_built()
        environment = build.environment(os.environ)
    except build.SimGpuError as error:
        raise CommandError(str(error)) from error
    words = isolated("gputop.demo", name, *([str(options.duration)] if options.duration else []))
    if sys.stderr.isatty():  # not under gputop itself, which keeps the output
        sys.stderr.write("gputop demo: to watch it, in another terminal: gputop --simgpu\n")
    # the search path of the loader is read at start: a new program image, the same process
    os.execve(words[0], words, environment)
