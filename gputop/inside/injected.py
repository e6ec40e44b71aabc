"""Builds the library of ``--inside`` at first use, beside the simulated GPU, and names it to a program."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gputop.errors import GputopError
from gputop.process.path_trust import trusted_path, weak_part
from gputop.simgpu.library_build import SimGpuError, cache_root, check_owner
from probes.inside.messages import c_header

_HERE: Final = Path(__file__).resolve().parent
_LIBRARY: Final = "libgputop-inside.so"
_FLAGS: Final = ("-std=gnu11", "-O2", "-g1", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-Wall")
_MACHINES: Final = ("x86_64", "aarch64")
#: The driver loads the one, NVTX's header in a program the other.
VARIABLES: Final = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


class InsideError(GputopError):
    """``--inside`` is not possible here; the message says why and what to do."""


def environment(base: Mapping[str, str]) -> tuple[dict[str, str], Path]:
    """An environment whose programs load the library, and the library.

    Raises:
        InsideError: It cannot be built, or another library is named there already.
    """
    for name in VARIABLES:
        if base.get(name):
            raise InsideError(f"--inside needs {name}, which is set to {base[name]}: unset it")
    library = ensure_built()
    return {**base, **dict.fromkeys(VARIABLES, str(library))}, library


def ensure_built() -> Path:
    """Builds the library unless it is there, and returns its path.

    Raises:
        InsideError: There is no compiler, or no safe place.
    """
    sources = sorted([*_HERE.glob("*.c"), *_HERE.glob("*.h")])
    digest = hashlib.sha256(f"{_FLAGS}{platform.machine()}{c_header()}".encode())
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    target = cache_root() / f"inside-{digest.hexdigest()[:16]}"
    try:
        if not target.is_dir():
            _build([path for path in sources if path.suffix == ".c"], target)
        check_owner(target)
    except SimGpuError as error:
        raise InsideError(str(error)) from error
    except OSError as error:
        raise InsideError(f"the library of --inside cannot be kept in {target.parent}: {error}") from error
    return target / _LIBRARY


def _build(sources: list[Path], target: Path) -> None:
    """Builds beside the target and renames, so that nobody ever sees half of it."""
    if platform.machine() not in _MACHINES:
        raise InsideError(f"--inside works on x86-64 and arm64, this machine is {platform.machine()}")
    folders = os.environ.get("PATH", os.defpath)
    folders = trusted_path(folders) if os.geteuid() == 0 else folders
    compiler = shutil.which("cc", path=folders)
    if compiler is None or (os.geteuid() == 0 and weak_part(compiler)):
        raise InsideError("--inside needs a C compiler: apt-get install gcc libc6-dev")
    if not target.parent.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.parent.chmod(0o755)
    check_owner(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as name:
        work, out = Path(name), Path(name) / "out"
        out.mkdir()
        (work / "inside_layout.h").write_text(c_header(), encoding="utf-8")
        command = [
            compiler,
            *_FLAGS,
            f"-I{work}",
            f"-I{_HERE}",
            "-o",
            str(out / _LIBRARY),
            *map(str, sources),
            "-ldl",
        ]
        # of root's environment a compiler would take further programs and headers
        clean = {"PATH": folders} if os.geteuid() == 0 else None
        done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            output = " | ".join(done.stderr.strip()[-1000:].splitlines())
            raise InsideError(f"the library of --inside does not build; it said: {output}")
        (out / _LIBRARY).chmod(0o755)
        out.chmod(0o755)
        try:
            out.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster
                raise
