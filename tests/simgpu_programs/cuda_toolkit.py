"""Finds what NVIDIA ships as wheels: the compiler and the real runtime libraries."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Toolkit:
    """Parts of the CUDA toolkit; a part that is not installed is None."""

    nvcc: Path | None
    runtime: dict[int, Path]


def _roots() -> list[Path]:
    named = [Path(p) for p in os.environ.get("GPUTOP_CUDA_WHEELS", "").split(os.pathsep) if p]
    return [*named, Path(sysconfig.get_paths()["purelib"])]


def find() -> Toolkit:
    """Looks in the directories named by GPUTOP_CUDA_WHEELS, then in this interpreter's packages."""
    nvcc: Path | None = None
    runtime: dict[int, Path] = {}
    for root in _roots():
        compilers = sorted((root / "nvidia").glob("*/bin/nvcc"))
        nvcc = nvcc or next(iter(compilers), None)
        for major in (12, 13):
            libraries = sorted((root / "nvidia").glob(f"*/lib/libcudart.so.{major}"))
            if libraries:
                runtime.setdefault(major, libraries[0])
    return Toolkit(nvcc, runtime)


def missing(what: str) -> None:
    """Skips the test loudly, or fails it where nothing may be left out."""
    message = f"{what} not found: pip install it, or name its directory in GPUTOP_CUDA_WHEELS"
    if os.environ.get("GPUTOP_REQUIRE_ALL") == "1":
        pytest.fail(message)
    pytest.skip(message)


def real_runtime(major: int) -> Path:
    """Returns NVIDIA's own libcudart of a version."""
    path = find().runtime.get(major)
    if path is None:
        missing("nvidia-cuda-runtime" if major == 13 else "nvidia-cuda-runtime-cu12")
    assert path is not None
    return path


def compiler() -> Path:
    """Returns nvcc, with its own headers beside it."""
    path = find().nvcc
    if path is None or not (path.parents[1] / "include" / "cuda_runtime.h").exists():
        missing("nvidia-cuda-nvcc, nvidia-cuda-crt and nvidia-cuda-runtime")
    assert path is not None
    return path
