"""Builds the library of ``--inside`` at first use, and has a program load it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gputop.process import c_build
from gputop.process.c_build import BuildError, compile_c
from probes.inside.messages import c_header

_HERE: Final = Path(__file__).resolve().parent
_WHAT: Final = "the library of --inside"
_LIBRARY: Final = "libgputop-inside.so"
_FLAGS: Final = ("-std=gnu11", "-O2", "-g1", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall")
_MACHINES: Final = ("x86_64", "aarch64")
# read by the CUDA driver and by NVTX's header
VARIABLES: Final = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


def environment(base: Mapping[str, str]) -> tuple[dict[str, str], Path]:
    """Return an environment whose programs load the library, and the library's path.

    Raises:
        BuildError: It cannot be built, or the environment names another library.
    """
    for name in VARIABLES:
        if base.get(name):
            raise BuildError(f"--inside needs {name}, which is set to {base[name]}: unset it")
    library = ensure_built()
    return {**base, **dict.fromkeys(VARIABLES, str(library))}, library


def ensure_built() -> Path:
    """Build the library if needed, and return its path.

    Raises:
        BuildError: There is no compiler, or no safe folder.
    """
    sources = sorted([*_HERE.glob("*.c"), *_HERE.glob("*.h")])
    digest = hashlib.sha256(f"{_FLAGS}{platform.machine()}{c_header()}".encode())
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")

    def make(work: Path, out: Path) -> None:
        if platform.machine() not in _MACHINES:
            raise BuildError(f"--inside works on x86-64 and arm64, this machine is {platform.machine()}")
        (work / "inside_layout.h").write_text(c_header(), encoding="utf-8")
        units = [str(path) for path in sources if path.suffix == ".c"]
        compile_c(_WHAT, out / _LIBRARY, *_FLAGS, f"-I{work}", f"-I{_HERE}", *units, "-ldl")

    return c_build.ensure_built(f"inside-{digest.hexdigest()[:16]}", _WHAT, make) / _LIBRARY
