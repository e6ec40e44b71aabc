"""``gputop stats``: totals of a recording."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from gputop.commands.replay import open_file, understood
from gputop.engine.stats import collect
from gputop.engine.stats_output import stats_to_json, stats_to_text
from gputop.process.say import put, show
from gputop.process.terminal import terminal_width


def stats(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    reader = open_file(options.file)
    with understood(options.file):
        totals = collect(reader.header, reader.items())
    totals = replace(totals, problems=(*reader.problems, *totals.problems))
    reader.close()
    if options.json:
        put(json.dumps(stats_to_json(totals)) + "\n")
    else:
        show(stats_to_text(totals, width=terminal_width(sys.stdout)))
    return 0
