"""``gputop stats``: totals of a recording."""

from __future__ import annotations

import argparse
import json
import sys

from gputop.engine.stats_output import stats_to_text
from gputop.library import answers
from gputop.process.say import put, show
from gputop.process.terminal import terminal_width


def stats(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    totals = answers.stats(options.file)
    if options.json:
        put(json.dumps(answers.to_json(totals)) + "\n")
    else:
        show(stats_to_text(totals, width=terminal_width(sys.stdout)))
    return 0
