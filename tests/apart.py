"""Workers of a test run are apart: none has its programs traced by what another one's test observes.

Each worker of root's, and a run in one process, is in a mount namespace of its own, in which the simulated
libraries are copies: so probes on them are met by its own programs only, as on a machine of its own. A gputop
that looks at the whole machine would find the copies of the others, too; ``tests/gputop_apart.py`` does not.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.process.c_build import BuildError
from gputop.simgpu import ensure_built

NAMESPACES = "GPUTOP_TEST_NAMESPACES"  # a folder with a file for each worker, by the number of its process
_NEW_NAMESPACE, _BIND, _ALL_BELOW, _PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000  # linux/sched.h, linux/mount.h


def configure(config: pytest.Config) -> None:
    """Sets this process apart if it runs tests; where there are no libraries, tests that need them say so."""
    worker: dict[str, str] | None = getattr(config, "workerinput", None)
    with suppress(BuildError):
        libraries = ensure_built()  # once, where there are workers to come
        if worker is not None:
            _set_apart(worker["workerid"], Path(config.getoption("basetemp")).parent, libraries)
        elif not getattr(config.option, "numprocesses", None):
            folder = tempfile.TemporaryDirectory(prefix="gputop-test-apart-")
            config.add_cleanup(folder.cleanup)
            _set_apart("alone", Path(folder.name), libraries)


def _set_apart(worker: str, folder: Path, libraries: Path) -> None:
    """Gives this process and all that it starts copies of the libraries, in the run's folder, if it may."""
    kernel = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or kernel.unshare(_NEW_NAMESPACE):
        return
    own = folder / f"libraries-{worker}"
    shutil.copytree(libraries, own)
    for source, target, flags in ((b"none", b"/", _ALL_BELOW | _PRIVATE), (own, libraries, _BIND)):
        if kernel.mount(os.fsencode(source), os.fsencode(target), None, flags, None):
            error = ctypes.get_errno()
            if error == errno.EINVAL and target == b"/":
                raise pytest.UsageError(
                    "/ is no mount point, as in a chroot, so tests of root cannot be set apart from each "
                    "other: mount --bind FOLDER FOLDER before chroot FOLDER"
                )
            raise OSError(error, os.strerror(error), str(target))
    # of all parts of a run (scripts/test.sh)
    namespaces = Path(os.environ.get(NAMESPACES, folder / "namespaces"))
    namespaces.mkdir(exist_ok=True)
    (namespaces / str(os.getpid())).touch()
    os.environ[NAMESPACES] = str(namespaces)


def namespace_of(pid: int) -> int:
    """The number of a process's mount namespace; 0 where it is gone or may not be asked."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino
    except OSError:
        return 0


def others() -> frozenset[int]:
    """The namespaces of the other workers, as long as these live: the kernel gives a number again."""
    if not (folder := os.environ.get(NAMESPACES)):
        return frozenset()
    try:
        living = {namespace_of(int(file.name)) for file in Path(folder).iterdir()}
    except PermissionError:  # who may not read root's folder may not ask for root's namespaces either
        return frozenset()
    return frozenset(living - {0, namespace_of(os.getpid())})
