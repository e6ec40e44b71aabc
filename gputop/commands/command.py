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
    """A command; each file of one ends in ``COMMAND``."""

    description: str  # its purpose, for its help
    add_arguments: Callable[[ArgumentParser], None]  # adds its arguments to its parser
    run: Callable[[Namespace], int]  # runs it; returns the exit status, raises CommandError
    usage: tuple[str, ...] = ()  # the forms in which it is typed; empty: made by argparse
    starts: bool = False  # True if it starts a program: the words after ``--``, in ``options.command``
    # checks flags that depend on each other; raises CommandError
    check: Callable[[Namespace], None] = lambda _options: None
    intermixed: bool = False  # True if an optional argument may follow flags
    # True if an interrupt leaves nothing to clean up
    only_reads: Callable[[Namespace], bool] = lambda _options: False
    # True if the terminal is its own, so that nothing else may write there
    has_screen: Callable[[Namespace], bool] = lambda _options: False
    verbose: str = "log to standard error; -vv: more"  # the help of ``-v``


# the source of pyproject.toml's version: importlib.metadata took a fifteenth of a recording's start
VERSION = "0.14.0"
