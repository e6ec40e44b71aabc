"""Distinguishes libraries' files from a program's own, which have the lines that a person can change."""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import Final

# Python's own modules and installed packages, and the demo's stand-ins for PyTorch.
_LIBRARY: Final = re.compile(
    r"/(site-packages|dist-packages)/|/lib(64)?/python3(\.\d+)?/|^<(frozen|torch|built-in)\b"
    r"|/gputop/demo/(cuda|torchlike|loaderlike|workers)\.py$"
)
# Of native code: what the system, CUDA and the frameworks bring along, wherever they lie, and interpreters.
_NATIVE_LIBRARY: Final = re.compile(
    r"^(/usr)?/lib(32|64|x32)?/|^/usr/local/(cuda|nvidia|lib)[^/]*/|^/opt/(nvidia|intel|rocm|conda)[^/]*/"
    r"|/lib(c|m|dl|rt|pthread|ffi|gcc_s|stdc\+\+|c\+\+(abi)?|gomp|omp|iomp5|numa)(-[^/]*)?\.so[^/]*$"
    r"|/lib(cuda|cudart|cublas(Lt)?|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|nvrtc|nvjitlink|nccl|nv[A-Za-z]+"
    r"|nvidia|torch|c10|caffe2|triton|mlx|tensorflow|jax|xla|onnxruntime|openblas|mkl|python3)([-_.\d][^/]*)?\.so[^/]*$"
    r"|/ld-[^/]*\.so[^/]*$|/python3?(\.\d+)?[a-z]*$"
)


@lru_cache(maxsize=4096)
def is_library(path: str) -> bool:
    """True if a file belongs to a library."""
    path = direct(path)
    if _LIBRARY.search(path) is not None:
        return True
    return not path.endswith(".py") and _NATIVE_LIBRARY.search(path) is not None


def without_folders(path: str) -> str:
    """The file's name; of a library's file also the folders within the library, which identify no user.

    A native library gets a folder that marks it as one.
    """
    path = direct(path)
    found = _LIBRARY.search(path)
    if found:
        return path[found.start() :]
    name = path.rpartition("/")[2]
    return f"/lib/{name}" if is_library(path) else name


def direct(path: str) -> str:
    """A path without ``..``, which could lead out of a library's folder."""
    return posixpath.normpath(path) if "/../" in path else path
