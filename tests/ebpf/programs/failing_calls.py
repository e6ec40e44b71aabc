"""Makes calls that fail, and counts by itself which failed at which line with what.

``crash``: launches kernels of which one breaks the context, five and then a wait, until all calls fail.
"""

import ctypes
import json
import os
import sys
from collections import Counter

from cuda import Cuda

cuda = Cuda()
COUNTS = Counter()


def noted(api, code):
    frame = sys._getframe(1)
    if code:
        COUNTS["cuda" + api, code, frame.f_lineno] += 1
    return code


def tell(**facts):
    with open(os.environ["SELF_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps({"pid": os.getpid(), **facts}) + "\n")


def refused():
    place = ctypes.c_void_p()
    for _ in range(3):
        noted("Malloc", cuda.Malloc(ctypes.byref(place), ctypes.c_size_t(1 << 40)))
    noted("Malloc", cuda.Malloc(ctypes.byref(place), ctypes.c_size_t(4096)))
    noted("Free", cuda.Free(ctypes.c_void_p(4096)))
    noted("Free", cuda.Free(place))
    for _ in range(2):
        noted("MallocHost", cuda.MallocHost(ctypes.byref(place), ctypes.c_size_t(0)))
    noted("StreamSynchronize", cuda.StreamSynchronize(ctypes.c_void_p(64)))
    event = cuda.event()
    cuda.launch(300_000_000)  # still at work when it is asked, however busy the machine is
    cuda.EventRecord(event, None)
    assert cuda.EventQuery(event) == 600
    noted("DeviceSynchronize", cuda.DeviceSynchronize())
    tell(failed=[[*key, count] for key, count in COUNTS.items()])


def crash():
    broken = number = 0
    while broken < 6:
        for _ in range(5):
            number += 1
            broken += cuda.launch(200_000, function=number) == 700
        broken += cuda.DeviceSynchronize() == 700
    tell(broken=broken)


crash() if "crash" in sys.argv else refused()
