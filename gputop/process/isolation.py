"""Root's Python takes no code from the working folder, from PYTHONPATH or from a user's packages.

An interpreter that was started without -I looks there. ``isolate`` starts it again with -I, before anything
but the standard library is imported, where users other than root could interfere.
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
    """The words that start one of our programs so that no other user's folder gives it code.

    Args:
        module: The package whose ``__main__`` it is.
        arguments: What it is given.
        name: What it takes itself to be called.
    """
    return [sys.executable, "-I", _LAUNCHER, f"{module}:{name}" if name else module, *arguments]


def isolate() -> None:
    """Becomes an isolated interpreter if root runs this one and others could give it code."""
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
    """Interpreters that ``multiprocessing`` starts from now on take no code from the working folder.

    They begin with ``-c``, which looks there first; what to import afterwards they are given by this process.
    """
    import subprocess
    from multiprocessing import util

    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    util._args_from_interpreter_flags = lambda: [*flags, "-I"]  # type: ignore[attr-defined]


def _exposed() -> bool:
    """Whether this interpreter may import what others than root wrote."""
    named = any(name.startswith("PYTHON") and name not in _HARMLESS for name in os.environ)
    return named or any(map(weak_part, sys.path))


# Standard input, output and errors are open, also where they were closed: else a file gets their number.

# what is written to an output that is not there fails and is reported, instead of being thrown away
_FLAGS = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


def complete() -> None:
    """Opens the null device in the place of what is closed."""
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
