"""What a file of this package says of its command: arguments, help, run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


def _nothing(_options: Namespace) -> None:
    return None


def _never(_options: Namespace) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Command:
    """A command; each file of one ends in ``COMMAND``.

    Attributes:
        description: What it does, for its help.
        add_arguments: Adds its flags and words to its parser.
        run: Does it; returns the exit status, raises CommandError.
        usage: The forms in which it is typed; empty: one that argparse makes of the arguments.
        starts: Whether it takes a program to start: words after ``--``, in ``options.command``.
        check: Settles what flags mean together; raises CommandError where they exclude each other.
        intermixed: Whether a word that may be missing may stand behind flags.
        only_reads: Whether it holds nothing that an interrupt would have to give back.
        has_screen: Whether it takes the terminal for itself, so that nothing else may write there.
        verbose: What ``-v`` does, for its help.
    """

    description: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    usage: tuple[str, ...] = ()
    starts: bool = False
    check: Callable[[Namespace], None] = _nothing
    intermixed: bool = False
    only_reads: Callable[[Namespace], bool] = _never
    has_screen: Callable[[Namespace], bool] = _never
    verbose: str = "log to standard error; -vv: more"


def always(_options: Namespace) -> bool:
    """For ``only_reads`` and ``has_screen``, whatever the flags."""
    return True


# Which gputop this is.

# pyproject.toml has it from here; to ask the installation took a fifteenth of the start of a recording
VERSION = "0.12.0"
