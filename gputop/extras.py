"""What some commands need beside gputop's own packages, and how it is installed into this installation."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra of pyproject.toml.

    The packages are named, not gputop's extra: gputop comes from a checkout, and what a package index has
    under its name may be somebody else's.
    """
    try:
        wanted = requires("gputop") or []
    except PackageNotFoundError:
        wanted = []
    found = [re.split(r"\s*;", row)[0] for row in wanted if re.search(rf"extra == ['\"]{extra}['\"]", row)]
    words = [sys.executable, "-m", "pip", "install", *found]
    return " ".join(map(shlex.quote, words))
