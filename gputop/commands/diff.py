"""``gputop diff``: did the change help."""

from __future__ import annotations

import argparse
import json
import sys

from gputop.explain.compare_output import diff_to_text
from gputop.explain.evidence.memory import keep_freed
from gputop.library import answers
from gputop.process.say import put, show
from gputop.process.terminal import terminal_width

_WIDTH = 100


def diff(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    keep_freed()
    found = answers.diff(options.before, options.after)
    if options.json:
        put(json.dumps(answers.to_json(found)) + "\n")
    else:
        show(diff_to_text(found, min(terminal_width(sys.stdout) or _WIDTH, _WIDTH)))
    return 0
