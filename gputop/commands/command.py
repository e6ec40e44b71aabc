"""A command: its arguments, its help, its function."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


def always(_options: Namespace) -> bool:
    """True, whatever the flags: for ``only_reads`` and ``has_screen``."""
    return True


@dataclass(frozen=True, slots=True)
class Command:
    """A command; each file of one ends in ``COMMAND``.

    Attributes:
        description: Its purpose, for its help.
        add_arguments: Adds its arguments to its parser.
        run: Runs it; returns the exit status, raises CommandError.
        usage: The forms in which it is typed; empty: made by argparse.
        starts: True if it starts a program: the words after ``--``, in ``options.command``.
        check: Checks flags that depend on each other; raises CommandError.
        intermixed: True if an optional argument may follow flags.
        only_reads: True if an interrupt leaves nothing to clean up.
        has_screen: True if the terminal is its own, so that nothing else may write there.
        verbose: The help of ``-v``.
    """

    description: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    usage: tuple[str, ...] = ()
    starts: bool = False
    check: Callable[[Namespace], None] = lambda _options: None
    intermixed: bool = False
    only_reads: Callable[[Namespace], bool] = lambda _options: False
    has_screen: Callable[[Namespace], bool] = lambda _options: False
    verbose: str = "log to standard error; -vv: more"


# the source of pyproject.toml's version: importlib.metadata took a fifteenth of a recording's start
VERSION = "0.12.0"
