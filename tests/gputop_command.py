"""gputop as tests start it: isolated at once, and where it looks at the whole machine, at its test's."""

from __future__ import annotations

import sys
from pathlib import Path

from gputop.process.isolation import isolated

# as root runs it in the end; started otherwise it would start itself a second time, so
GPUTOP = tuple(isolated("gputop"))
# one that leaves what tests in other workers run alone
GPUTOP_APART = (sys.executable, "-I", str(Path(__file__).with_name("gputop_apart.py")))
