"""Keeps root's Python from loading code out of the working folder, PYTHONPATH or a user's packages.

An interpreter started without -I looks there. ``isolate`` starts it again with -I, before anything but the
standard library is imported, if users other than root could interfere.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from gputop.process.path_trust import weak_part

_LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
# of the variables that Python reads, those that bring no code with them
_HARMLESS = frozenset(
    {
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONFAULTHANDLER",
        "PYTHONHASHSEED",
        "PYTHONIOENCODING",
        "PYTHONSAFEPATH",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
    }
)


def isolated(module: str, *arguments: str, name: str = "") -> list[str]:
    """Return the command line of one of our programs, isolated from other users' folders.

    Args:
        module: The package whose ``__main__`` is run.
        arguments: Its arguments.
        name: The program's name in its own messages.
    """
    return [sys.executable, "-I", _LAUNCHER, f"{module}:{name}" if name else module, *arguments]


def isolate() -> None:
    """Restart the interpreter with -I if root runs it and other users could inject code."""
    if os.geteuid() != 0:
        return
    # an editable installation leaves a name there, which would be a folder of the working folder
    sys.path[:] = [folder for folder in sys.path if os.path.isabs(folder)]
    if sys.flags.isolated or not _exposed():
        return
    words = isolated("gputop", *sys.argv[1:], name=sys.argv[0])
    if sys.flags.utf8_mode:
        words[1:1] = ["-X", "utf8"]
    os.execv(sys.executable, words)


def isolate_children() -> None:
    """Keep interpreters started by ``multiprocessing`` from loading code out of the working folder.

    They start with ``-c``, which looks there first; their import path then comes from this process.
    """
    import subprocess
    from multiprocessing import util

    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    util._args_from_interpreter_flags = lambda: [*flags, "-I"]  # type: ignore[attr-defined]


def _exposed() -> bool:
    """True if this interpreter may import files that users other than root can write."""
    named = any(name.startswith("PYTHON") and name not in _HARMLESS for name in os.environ)
    return named or any(map(weak_part, sys.path))


# writing to a closed output must fail and be reported, so 1 is opened for reading
_FLAGS = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


def complete() -> None:
    """Open the null device for closed standard streams: else another file would get their number."""
    for number, flags in _FLAGS.items():
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # the lowest number that is free: this one
    sys.stdin = sys.stdin or _stream(0, "r")
    sys.stdout = sys.stdout or _stream(1, "w")
    sys.stderr = sys.stderr or _stream(2, "w")


def _stream(number: int, mode: str) -> TextIO:
    return open(number, mode, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[return-value]
