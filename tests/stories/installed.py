"""Where ``make torch-cuda`` and ``make torch`` put PyTorch, if they did."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

_SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def cache() -> Path:
    """Where test installations lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gputop-tests"


def _folder(script: str, variable: str, name: str) -> Path | None:
    (version,) = re.findall(r"^version=(.+)$", (_SCRIPTS / script).read_text(), re.MULTILINE)
    folder = Path(os.environ.get(variable) or cache() / f"{name}-{version}")
    return folder if (folder / "complete").exists() else None


def program_of_prometheus(name: str) -> str:
    """Where one of its programs is, unpacked by scripts/setup.sh or installed; "" where there is none."""
    unpacked = cache() / "prometheus" / "usr" / "bin" / name
    return str(unpacked) if unpacked.exists() else shutil.which(name) or ""


def wheel() -> Path | None:
    """The CUDA wheel."""
    return _folder("torch_cuda.sh", "GPUTOP_TORCH_CUDA", "torch-cuda")


def cpu_build() -> Path | None:
    """The CPU build, which the shim gives a device."""
    return _folder("torch.sh", "GPUTOP_TORCH", "torch")


def numba() -> Path | None:
    """An environment with numba-cuda and pyzmq, and no PyTorch."""
    return _folder("numba.sh", "GPUTOP_NUMBA", "numba")
