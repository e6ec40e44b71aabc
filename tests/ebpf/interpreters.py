"""The Pythons of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def interpreter(minor: int) -> str | None:
    """A Python of that version, in the search path or of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for path in (*sorted(versions.glob(f"3.{minor}.*/bin/python3")), shutil.which(f"python3.{minor}")):
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(path)
    return None
