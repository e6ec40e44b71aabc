"""Where ``make torch-cuda`` put the CUDA build of PyTorch that runs on the simulated GPU."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
_SCRIPT = HERE.parents[1] / "scripts" / "torch_cuda.sh"


def torch_cuda_python() -> str:
    """Returns its interpreter; skips the test where it is not installed: 0.5 GB are fetched by hand only."""
    (version,) = re.findall(r"^version=(.+)$", _SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    default = cache / "gputop-tests" / f"torch-cuda-{version}"
    folder = Path(os.environ.get("GPUTOP_TORCH_CUDA") or default)
    if not (folder / "complete").exists():
        pytest.skip(f"no CUDA build of torch in {folder}: make torch-cuda")
    return str(folder / "bin" / "python")
