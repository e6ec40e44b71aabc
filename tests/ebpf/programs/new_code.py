"""Waits for the GPU in code that has never run before, and does so thousands of times (the argument)."""

import ctypes
import os
import sys

RUNTIME = ctypes.CDLL(os.environ.get("TEST_CUDART", "libcudart.so.12"))
BEFORE = "\n    0" * 400  # lines before the call: what is told of code holds where each of them is

for number in range(int(sys.argv[1])):
    names = {"sync": RUNTIME.cudaDeviceSynchronize}
    exec(f"def f_{number}():{BEFORE}\n    x = [{'1 + 1, ' * 40}]\n    sync()\nf_{number}()", names)
