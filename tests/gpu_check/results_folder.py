"""The folder of results: root writes there by name, so it is the kit's own, and nothing else lies in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gputop.process.path_trust import weak_part

RESULTS = "results.json"
_OURS = ("errors", "trace", "state")  # the last is the simulated NVML's


def claim(folder: Path) -> str:
    """Makes the folder.

    Args:
        folder: Where it is to be; one of an earlier start is taken again.

    Returns:
        Why it cannot be used, and what to do; "" where it can.
    """
    weak = weak_part(str(folder.absolute().parent))
    if weak and os.geteuid() == 0 and _is_anothers(weak):
        return f"another user decides what lies in {weak}: name a folder of your own, -o FOLDER"
    try:
        folder.mkdir(parents=True, mode=0o755)
    except FileExistsError:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            return f"{folder} is a link, no folder, or one that others can write: name another one, -o FOLDER"
        if os.listdir(folder) and not _is_file(folder / RESULTS):
            return f"{folder} has other files, and the kit tidies up: name another one, -o FOLDER"
    return ""


def tidy(folder: Path, kept: set[str]) -> None:
    """Takes away what the kit wrote beside what is kept."""
    for path in folder.iterdir():
        ours = path.suffix in (".msgpack", ".json") or path.stem in _OURS
        if ours and path.name not in kept and path.is_file():
            path.unlink()


def _is_anothers(step: str) -> bool:
    """Whether who can change this step is neither root nor who called sudo."""
    facts = os.stat(step)
    if facts.st_uid == 0:
        return bool(facts.st_mode & 0o022) and not facts.st_mode & stat.S_ISVTX
    return str(facts.st_uid) != os.environ.get("SUDO_UID", "") or bool(facts.st_mode & 0o022)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
