"""Runs a command of gputop in this process, as if it had been typed."""

from __future__ import annotations

from pathlib import Path

from gputop.commands import cli


def typed(*words: str) -> int:
    """The exit status; what is printed goes where the process prints."""
    return cli.run(words)


def imported(trace: Path, folder: Path) -> Path:
    """The session file of a trace."""
    path = folder / f"{trace.name}.msgpack"
    assert typed("import", str(trace), "-o", str(path)) == 0
    return path
