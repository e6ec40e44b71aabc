"""Compiles the shim once, beside the CPU build of PyTorch, and says how a program is started with it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import gputop.simgpu
from tests.stories.installed import cache

HERE = Path(__file__).resolve().parent
SIMGPU = Path(gputop.simgpu.__file__).parent
SOURCES = sorted(HERE.glob("*.cpp"))
FLAGS = ("-std=c++20", "-O2", "-fPIC", "-Wall", "-Wno-interference-size")


def _key(torch: Path) -> str:
    digest = hashlib.sha256(str(torch).encode())
    for source in [*SOURCES, *sorted(HERE.glob("*.h")), SIMGPU / "sg_private.h"]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def ensure_built(folder: Path) -> Path:
    """The library, compiled if it is not there yet (half a minute).

    Args:
        folder: The virtual environment that holds PyTorch.

    It lies in a folder of installed packages, under the name of the one whose work it does: who reads stacks
    takes it for a part of PyTorch.
    """
    (torch,) = folder.glob("lib/python3*/site-packages/torch")
    place = cache() / f"stories-{_key(torch)}" / "site-packages" / "torch" / "lib"
    library = place / "libtorch_cuda.so"
    if library.exists():
        return library
    place.mkdir(parents=True, exist_ok=True)
    include = torch / "include"
    where = [f"-I{SIMGPU}", f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}"]
    objects = [place / f"{source.stem}-{os.getpid()}.o" for source in SOURCES]
    for source, made in zip(SOURCES, objects, strict=True):
        subprocess.run(["g++", *FLAGS, *where, "-c", str(source), "-o", str(made)], check=True)
    linked = place / f"linked-{os.getpid()}"
    lib = torch / "lib"
    link = [f"-L{lib}", "-ltorch_cpu", "-lc10", "-ldl", f"-Wl,-rpath,{lib}"]
    subprocess.run(["g++", "-shared", "-o", str(linked), *map(str, objects), *link], check=True)
    for made in objects:
        made.unlink()
    linked.rename(library)
    return library


def settings(folder: Path) -> dict[str, str]:
    """Environment of a program that is to find the device."""
    return {
        "STORIES_SHIM": str(ensure_built(folder)),
        "PYTHONPATH": str(HERE / "site-packages"),
    }
