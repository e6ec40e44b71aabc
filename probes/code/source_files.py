"""Which files of code are libraries: the line that a person can change is in another one."""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import Final

# Python's own modules and installed packages; what stands for PyTorch in the demo's workloads is one, too.
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
    """Whether a file is a library's."""
    path = direct(path)
    if _LIBRARY.search(path) is not None:
        return True
    return not path.endswith(".py") and _NATIVE_LIBRARY.search(path) is not None


def without_folders(path: str) -> str:
    """The file's name; of a library's file also the folders within the library, which are nobody's.

    A library of native code gets a folder by which it stays one.
    """
    path = direct(path)
    found = _LIBRARY.search(path)
    if found:
        return path[found.start() :]
    name = path.rpartition("/")[2]
    return f"/lib/{name}" if is_library(path) else name


def direct(path: str) -> str:
    """A path that does not go back up: through a library's folder it may lead to somebody's."""
    return posixpath.normpath(path) if "/../" in path else path
