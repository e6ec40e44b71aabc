"""Builds C libraries at first use, into a cache that other users cannot change."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from gputop.errors import GputopError
from gputop.process.path_trust import trusted_path, weak_part

ROOT_CACHE = Path("/var/cache/gputop")


class BuildError(GputopError):
    """A library cannot be built or used here; the message names the next step."""


def cache_root() -> Path:
    """Return the cache of built libraries: one for all users if root's, else the user's own."""
    if os.geteuid() == 0:
        return ROOT_CACHE
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gputop"


def ensure_built(name: str, what: str, make: Callable[[Path, Path], None]) -> Path:
    """Return the folder of some libraries, built first if needed.

    Args:
        name: Name of the folder; it must differ for different contents.
        what: Purpose of the libraries, as the first words of an error message.
        make: Builds them with ``compile_c``, from a work folder into an output folder.

    Raises:
        BuildError: There is no compiler, or no safe place.
    """
    root = cache_root()
    if os.geteuid() != 0 and (ROOT_CACHE / name).is_dir():
        root = ROOT_CACHE  # root's build serves everybody
    target = root / name
    try:
        if not target.is_dir():
            _build(target, make)
        _check_owner(target)
    except OSError as error:
        raise BuildError(f"{what} cannot be kept in {root}: {error}. Make it writable.") from error
    return target


def compile_c(what: str, output: Path, *arguments: str) -> None:
    """Run the C compiler, without root's environment.

    Args:
        what: As of ``ensure_built``.
        output: The library.
        arguments: Further arguments of the compiler.

    Raises:
        BuildError: There is no compiler, or compilation fails.
    """
    folders, environment = os.environ.get("PATH", os.defpath), None
    if os.geteuid() == 0:  # root's environment could add programs and headers
        folders = trusted_path(folders)
        environment = {"PATH": folders}
    compiler = shutil.which("cc", path=folders)
    if compiler is None or (os.geteuid() == 0 and weak_part(compiler)):
        raise BuildError(f"{what} needs a C compiler: apt-get install gcc libc6-dev")
    command = [compiler, "-shared", "-o", str(output), *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        error = " | ".join(result.stderr.strip()[-2000:].splitlines())
        raise BuildError(
            f"{what} does not build; is the C library's development part there "
            f"(apt-get install gcc libc6-dev)? The compiler's error: {error}"
        )
    output.chmod(0o755)


def _build(target: Path, make: Callable[[Path, Path], None]) -> None:
    """Build beside the target and rename, so that no process sees half of it."""
    root = target.parent
    if not root.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)
    _check_owner(root)
    with tempfile.TemporaryDirectory(dir=root, prefix="build-") as name:
        work, out = Path(name), Path(name, "out")
        out.mkdir()
        out.chmod(0o755)
        make(work, out)
        try:
            out.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster
                raise


def _check_owner(directory: Path) -> None:
    """Raise BuildError if another user could put code there that this user then loads."""
    trusted = {0, os.geteuid()}
    directory = directory.resolve()
    insists = os.geteuid() == 0  # a user's own groups, and where home lies, are that user's business
    parents = directory.parents if insists else ()
    for path in (directory, *parents, *directory.iterdir()):
        info = path.lstat()
        # in a sticky parent other users cannot replace our files; a folder of libraries must not grow
        sticky = path in parents and info.st_mode & stat.S_ISVTX
        others_write = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky
        if info.st_uid not in trusted or stat.S_ISLNK(info.st_mode) or (others_write and insists):
            raise BuildError(
                f"{path} is not safe to load code from: it or its place can be changed by others. "
                f"Remove {directory}, and let its parents belong to root."
            )
