"""Which gputop this is."""

from __future__ import annotations

# pyproject.toml has it from here; to ask the installation took a fifteenth of the start of a recording
VERSION = "0.1.0"
