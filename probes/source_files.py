"""Which files of Python code are libraries: the line that a person can change is in another one."""

from __future__ import annotations

import re
from typing import Final

# Python's own modules and installed packages; what stands for PyTorch in the demo's workloads is one, too.
_LIBRARY: Final = re.compile(
    r"/(site-packages|dist-packages)/|/lib(64)?/python3\.\d+/|^<frozen "
    r"|/gputop/demo/(cuda|torchlike|loaderlike|workers)\.py$"
)


def is_library(path: str) -> bool:
    """Whether a file is a library's."""
    return _LIBRARY.search(path) is not None


def without_folders(path: str) -> str:
    """The file's name; of a library's file also the folders within the library, which are nobody's."""
    found = _LIBRARY.search(path)
    return path[found.start() :] if found else path.rpartition("/")[2]
