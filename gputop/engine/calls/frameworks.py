"""The frameworks of a process, by the files on its stacks and the names of its threads.

Advice uses the terms of these: ``.item()`` means nothing to a C++ programmer.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final


class Framework(str, Enum):
    """A language or library of a program."""

    PYTHON = "python"
    TORCH = "torch"
    TRITON = "triton"
    NUMBA = "numba"
    CUPY = "cupy"
    JAX = "jax"
    TENSORFLOW = "tensorflow"


# of a file of Python, or a native library
_FILES: Final = (
    (Framework.TORCH, re.compile(r"/torch/|/lib(?:torch|c10)[^/]*\.so")),
    (Framework.TRITON, re.compile(r"/triton/|/libtriton[^/]*\.so")),
    (Framework.NUMBA, re.compile(r"/numba(?:_cuda)?/")),
    (Framework.CUPY, re.compile(r"/cupy(?:x|_backends)?/")),
    (Framework.JAX, re.compile(r"/jax(?:lib)?/|/xla_extension")),
    (Framework.TENSORFLOW, re.compile(r"/tensorflow/|/libtensorflow[^/]*\.so")),
    (Framework.PYTHON, re.compile(r"\.py$|^<|/python3[^/]*$|/libpython3[^/]*\.so")),
)
TORCH_THREADS: Final = ("pt_autograd", "pt_main_thread", "pt_data_pin", "pt_data_worker")


@lru_cache(maxsize=1 << 14)
def frameworks_of_file(file: str) -> frozenset[Framework]:
    """Return the frameworks shown by a file on a stack."""
    return frozenset(framework for framework, pattern in _FILES if pattern.search(file))
