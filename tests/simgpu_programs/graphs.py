"""Captures work into graphs and launches them; says what it has made, a JSON object in $SELF_LOG.

    graphs.py PAUSE_MS COUNT...

For each COUNT a graph is captured with as many calls as its number (from 1 on), instantiated, and launched
so often, with PAUSE_MS between two; the last but one is launched once more at the end. Then a graph of one
call is captured and instantiated again, and a capture ends that nobody began.
"""

import ctypes
import json
import os
import sys
import time

from cuda import Cuda

cuda = Cuda()
stream = cuda.stream(1)
memory = cuda.malloc(1 << 20)
pause = float(sys.argv[1]) / 1e3
counts = [int(word) for word in sys.argv[2:]]


def executable(calls: int) -> int:
    """The handle of what is launched, made of a graph of so many calls."""
    graph, made = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.StreamBeginCapture(stream, 0) == 0
    for _ in range(calls):
        assert cuda.MemsetAsync(memory, 0, ctypes.c_size_t(64), stream) == 0
    assert cuda.StreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert cuda.GraphInstantiate(ctypes.byref(made), graph, ctypes.c_ulonglong(0)) == 0
    return made.value or 0


told = {"pid": os.getpid(), "executables": [], "launches": {}}


def launch(made: int, count: int) -> None:
    """Launches it so often."""
    for _ in range(count):
        assert cuda.GraphLaunch(ctypes.c_void_p(made), stream) == 0
        time.sleep(pause)
    told["launches"][hex(made)] = told["launches"].get(hex(made), 0) + count


for number, count in enumerate(counts, 1):
    made = executable(number)
    told["executables"].append(hex(made))
    launch(made, count)
if len(counts) > 1:
    launch(int(told["executables"][-2], 16), 1)
executable(1)
told["refused"] = cuda.StreamEndCapture(stream, ctypes.byref(ctypes.c_void_p()))
assert cuda.DeviceSynchronize() == 0
with open(os.environ["SELF_LOG"], "a", encoding="utf-8") as log:
    log.write(json.dumps(told) + "\n")
