"""The Pythons of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.conftest import skip_or_fail
from tests.stories.installed import cache

OF_UNSTABLE = (14, 15)  # what scripts/pythons.sh unpacks


def interpreter(minor: int | str) -> str | None:
    """A Python of that version, of pyenv, in the search path, unpacked by scripts/pythons.sh, or built.

    ``14t`` is one without the GIL, which scripts/free_threaded.sh builds.
    """
    inside = [prefix / f"bin/python3.{minor}" for prefix in _prefixes(minor)]
    for path in (*inside, shutil.which(f"python3.{minor}")):
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(path)
    return None


def skip_without(minor: int, what: str) -> NoReturn:
    """Skips a test, or fails it where nothing may be left out; what an unstable suite lacks is no failure."""
    if minor in OF_UNSTABLE:
        pytest.skip(f"no {what} on this machine, and scripts/pythons.sh could not get one")
    skip_or_fail(f"no {what} on this machine")
    raise AssertionError


def library(minor: int | str) -> Path | None:
    """A libpython of that version, of pyenv or unpacked."""
    name = f"libpython3.{minor}.so.1.0"
    folders = [prefix / folder for prefix in _prefixes(minor) for folder in ("lib", "lib/x86_64-linux-gnu")]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _prefixes(minor: int | str) -> Iterator[Path]:
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from sorted(versions.glob(f"3.{minor}.*"))
    unpacked = cache() / "pythons" / f"3.{minor}"
    if (unpacked / "complete").exists():
        yield unpacked / "usr"
