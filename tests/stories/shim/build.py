"""Compiles the shim once, beside the CPU build of PyTorch, and says how a program is started with it.

``python -m tests.stories.shim.build`` is what ``make torch`` calls: no test needs to wait for a compiler.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gputop.simgpu
from tests.stories.installed import cache, cpu_build

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
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second would compile the same
        if not library.exists():
            _compile(torch, place, library)
    return library


def _compile(torch: Path, place: Path, library: Path) -> None:
    include, lib = torch / "include", torch / "lib"
    where = [f"-I{SIMGPU}", f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}"]
    objects = [place / f"{source.stem}.o" for source in SOURCES]

    def compiled(source: Path, made: Path) -> None:
        subprocess.run(["g++", *FLAGS, *where, "-c", str(source), "-o", str(made)], check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiled, SOURCES, objects))
    linked = place / "linked"
    link = [f"-L{lib}", "-ltorch_cpu", "-lc10", "-ldl", f"-Wl,-rpath,{lib}"]
    subprocess.run(["g++", "-shared", "-o", str(linked), *map(str, objects), *link], check=True)
    for made in objects:
        made.unlink()
    linked.rename(library)


def settings(folder: Path) -> dict[str, str]:
    """Environment of a program that is to find the device."""
    return {
        "STORIES_SHIM": str(ensure_built(folder)),
        "PYTHONPATH": str(HERE / "site-packages"),
    }


if __name__ == "__main__":
    if (installed := cpu_build()) is None:
        sys.exit("no CPU build of torch: make torch")
    ensure_built(installed)
