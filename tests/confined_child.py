"""Work in a forked child that gave something up before."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to give up here")


def in_child(before: Callable[[], object], work: Callable[[], object]) -> str:
    """What ``work`` says in a child that did ``before``; a signal's name when one ended it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # the tests before this one may have left more open than a confined process may have
            os.closerange(3, write)
            os.closerange(write + 1, 1 << 16)
            before()
            try:
                said = str(work())
            except OSError as error:
                said = errno.errorcode[error.errno or 0]
            except BaseException as error:
                said = type(error).__name__
            os.write(write, said.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as lines:
        said = lines.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said if status >= 0 else signal.Signals(-status).name


def status(*keys: str) -> str:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return " ".join(" ".join(lines[key].split()) for key in keys)
