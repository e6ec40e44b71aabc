"""Which gputop this is."""

from __future__ import annotations

VERSION = "0.1.0"  # pyproject.toml has it from here; asking the installation takes a tenth of what a start takes
