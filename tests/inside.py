"""Runs a command of gputop in this process: to read a recording, a child costs more than the reading."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping

from gputop.commands import cli


@contextlib.contextmanager
def _as_before(env: Mapping[str, str]) -> Iterator[None]:
    """What a command changes for the whole process, which is its own otherwise, is changed back."""
    handler, hooks = signal.getsignal(signal.SIGINT), (threading.excepthook, sys.unraisablehook)
    variables = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(variables)
        signal.signal(signal.SIGINT, handler)
        threading.excepthook, sys.unraisablehook = hooks


def run(*words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """``gputop WORDS`` without a terminal: status, output, errors, as of a process of its own.

    Args:
        words: A command that reads; what observes the machine gets a process.
        env: Variables that it has besides.
    """
    printed, said = io.StringIO(), io.StringIO()
    with _as_before(env or {}), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        try:
            status = cli.run(words)
        except SystemExit as ended:  # --help and --version
            status = int(ended.code or 0)
    return subprocess.CompletedProcess([*words], status, printed.getvalue(), said.getvalue())
