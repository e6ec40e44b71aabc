"""Waits for a file, makes calls, forks a child that makes calls: attached.py FILE CALLS."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from cuda import Cuda


def make(cuda: Cuda, calls: int) -> None:
    """Makes calls and says so."""
    for _ in range(calls):
        cuda.StreamQuery(None)
    with open(os.environ["SELF_LOG"], "a") as log:
        log.write(json.dumps({"pid": os.getpid(), "tid": threading.get_native_id(), "calls": calls}) + "\n")


def main() -> None:
    """One thread from before the attachment, one from after it, and a child's thread."""
    go, calls = Path(sys.argv[1]), int(sys.argv[2])
    cuda = Cuda()
    make(cuda, 5)  # before anybody watches
    while not go.exists():
        time.sleep(0.01)
    make(cuda, calls)
    thread = threading.Thread(target=make, args=(cuda, calls + 1))
    thread.start()
    thread.join()
    child = os.fork()
    if child == 0:
        make(cuda, calls + 2)
        os._exit(0)
    os.waitpid(child, 0)


main()
