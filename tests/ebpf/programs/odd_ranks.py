"""Makes communicators by each way of ``fake_nccl.c``, and says what it asked for."""

from __future__ import annotations

import ctypes
import json
import os
import sys

from nccl import UniqueId

library = ctypes.CDLL(sys.argv[1])
said = []
parent = 0x7F00DEADB000
for color, key in ((2, 7), (-1, 3), (5, 1)):
    made = ctypes.c_void_p()
    code = library.ncclCommSplit(ctypes.c_void_p(parent), color, key, ctypes.byref(made), None)
    said.append(
        {"what": 1, "first": color, "second": key, "id": parent, "made": made.value or 0, "code": code}
    )
first, second = (UniqueId.from_buffer_copy(bytes([number]) * 128) for number in (65, 66))
made = ctypes.c_void_p()
code = library.ncclCommInitRankScalable(ctypes.byref(made), 4, 3, 2, (UniqueId * 2)(first, second), None)
said.append({"what": 0, "first": 4, "second": 3, "words": "41" * 128, "made": made.value, "code": code})
made = ctypes.c_void_p()
code = library.ncclCommInitRankConfig(ctypes.byref(made), 3, second, 1, None)
said.append({"what": 0, "first": 3, "second": 1, "words": "42" * 128, "made": made.value, "code": code})
with open(os.environ["SELF_LOG"], "a") as log:
    log.writelines(json.dumps(line) + "\n" for line in said)
