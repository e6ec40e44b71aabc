"""Has the CUDA runtime open and calls nothing; for each line that it reads, says how its launch begins.

Where a probe is, a breakpoint stands in the function: whoever calls it meets it.
"""

from __future__ import annotations

import ctypes
import sys

library = ctypes.CDLL("libcudart.so.12")
place = ctypes.cast(library.cudaLaunchKernel, ctypes.c_void_p).value
assert place is not None
for _ in sys.stdin:
    print(ctypes.string_at(place, 32).hex(), flush=True)
