"""``gputop diff``: did the change help."""

from __future__ import annotations

import argparse
import json
import sys

from gputop.commands.explain import evidence_of
from gputop.commands.replay import understood
from gputop.explain.compare import compare
from gputop.explain.compare_output import diff_to_json, diff_to_text
from gputop.process.say import put, show
from gputop.process.terminal import terminal_width

_WIDTH = 100


def diff(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    before, after = evidence_of(options.before), evidence_of(options.after)
    with understood(f"{options.before} or {options.after}"):
        found = compare(before, after)
    if options.json:
        put(json.dumps(diff_to_json(found)) + "\n")
    else:
        show(diff_to_text(found, min(terminal_width(sys.stdout) or _WIDTH, _WIDTH)))
    return 0
