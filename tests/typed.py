"""Runs a command of gputop in this process, as if it had been typed."""

from __future__ import annotations

from gputop.commands import cli


def typed(*words: str) -> int:
    """The exit status; what is printed goes where the process prints."""
    return cli.run(words)
