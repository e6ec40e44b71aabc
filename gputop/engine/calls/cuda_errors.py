"""CUDA errors by code: name, text, and whether later calls fail, too.

Names and texts are NVIDIA's own (scripts/cuda_errors.py); runtime and driver use the same codes with two
names. NCCL's few codes are from nccl.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Annotated

import numpy as np
import numpy.typing as npt

from gputop.documents.fields import Mark

OUT_OF_MEMORY = 2
NOT_READY = 600  # the answer of a query, not an error
_UNLOADING = 4  # the process is ending: its libraries are unloaded in no defined order

_NCCL = {
    1: ("ncclUnhandledCudaError", "unhandled cuda error"),
    2: ("ncclSystemError", "unhandled system error"),
    3: ("ncclInternalError", "internal error"),
    4: ("ncclInvalidArgument", "invalid argument"),
    5: ("ncclInvalidUsage", "invalid usage"),
    6: ("ncclRemoteError", "remote process exited or there was a network error"),
}


def failed(codes: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.bool_]:
    """Return True for results of calls that are errors."""
    errors: npt.NDArray[np.bool_] = (codes != 0) & (codes != NOT_READY)
    return errors


@dataclass(frozen=True, slots=True)
class CudaErrorCode:
    """An error.

    Attributes:
        name: The name in the call's layer.
        text: CUDA's description, "" without one.
        sticky: True if every later call of the process fails as well: a kernel has broken the context.
    """

    code: int
    name: Annotated[str, Mark("error")]
    text: str
    sticky: bool = False

    @property
    def at_exit(self) -> bool:
        """True if it only reports the end of the process."""
        return self.code == _UNLOADING


@lru_cache(maxsize=1)
def _table() -> dict[int, tuple[str, str, bool, str]]:
    """Code -> (the runtime's name, the driver's, True if sticky, text)."""
    found = {}
    for line in (files("gputop.engine") / "cuda_errors.tsv").read_text(encoding="utf-8").splitlines():
        code, runtime, driver, sticky, text = line.split("\t")
        found[int(code)] = (runtime, driver, sticky == "1", text)
    return found


@lru_cache(maxsize=1)
def sticky_codes() -> frozenset[int]:
    """Return the codes after which every later call of a process fails, too."""
    return frozenset(code for code, row in _table().items() if row[2])


def cuda_error(layer: str, code: int) -> CudaErrorCode:
    """Return the error of a code returned by a call of a layer (``runtime``, ``driver``, ``nccl``)."""
    if layer == "nccl":
        name, text = _NCCL.get(code, (f"NCCL error {code}", ""))
        return CudaErrorCode(code, name, text)
    runtime, driver, sticky, text = _table().get(code, ("", "", False, ""))
    first, second = (driver, runtime) if layer == "driver" else (runtime, driver)
    return CudaErrorCode(code, first or second or f"CUDA error {code}", text, sticky)
