"""Waits for a file, makes calls, forks a child that makes calls: attached.py FILE CALLS [SEEN].

With SEEN it has CUDA open before, and its child waits for that file.
"""

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
    say(calls)


def say(calls: int) -> None:
    """Tells how many calls this thread has made."""
    with open(os.environ["SELF_LOG"], "a") as log:
        log.write(json.dumps({"pid": os.getpid(), "tid": threading.get_native_id(), "calls": calls}) + "\n")


def wait(file: Path) -> None:
    """Returns when a file is there."""
    while not file.exists():
        time.sleep(0.01)


def main() -> None:
    """One thread from before the attachment, one from after it, and a child's thread."""
    go, calls, seen = Path(sys.argv[1]), int(sys.argv[2]), [Path(word) for word in sys.argv[3:]]
    if seen:
        make(Cuda(), 5)  # before anybody watches
    else:
        say(0)
    wait(go)
    cuda = Cuda()
    make(cuda, calls)
    thread = threading.Thread(target=make, args=(cuda, calls + 1))
    thread.start()
    thread.join()
    child = os.fork()
    if child == 0:
        for file in seen:
            wait(file)
        make(cuda, calls + 2)
        os._exit(0)
    os.waitpid(child, 0)


main()
