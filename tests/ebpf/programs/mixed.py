"""Python calls a C library that calls CUDA: mixed.py LIBRARY ROUNDS."""

import ctypes
import json
import os
import sys

library = ctypes.CDLL(sys.argv[1])


def through_c(rounds):
    for _ in range(rounds):
        library.enter(3)


through_c(int(sys.argv[2]))
with open(os.environ["SELF_LOG"], "a") as log:
    log.write(json.dumps({"pid": os.getpid()}) + "\n")
