"""Calls CUDA from many threads at once, which need no GIL, and counts which line made how many calls.

Threads come and go, so that each copy of a function's bytecode is used by several, and copies get more while
others run. Code is made and freed meanwhile. The counts go to SELF_LOG. Arguments: threads, rounds of each.
"""

import ctypes
import json
import os
import sys
import threading
from collections import Counter

RUNTIME = ctypes.CDLL(os.environ.get("TEST_CUDART", "libcudart.so.12"))
sync = RUNTIME.cudaDeviceSynchronize
COUNTS, LOCK = Counter(), threading.Lock()
MADE = "def made(own, sync):\n{blank}    for _ in range(2):\n        own(sync())\n    return own(sync())\n"


class Thread(threading.Thread):
    """Counts for itself: a lock would put the threads in a row."""

    def __init__(self, rounds):
        super().__init__()
        self.rounds, self.counts = rounds, Counter()

    def own(self, _result):
        frame = sys._getframe(1)
        self.counts[frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname] += 1

    def run(self):
        own = self.own
        for number in range(self.rounds):
            self.hot(number)
            deep(own, number % 7)
            [own(sync()) for _ in range(2)]
            if number % 10 == 0:
                names = {}
                blank = "\n" * (number // 10 % 5)
                exec(compile(MADE.format(blank=blank), f"/made-{number // 10 % 3}.py", "exec"), names)
                names["made"](own, sync)
        with LOCK:
            COUNTS.update(self.counts)

    def hot(self, number):
        total = 0
        for turn in range(20):
            total += turn * number
            if turn == 5:
                self.own(sync())
        if number % 2:
            self.own(sync())
        return total


def deep(own, depth):
    if depth:
        deep(own, depth - 1)
        own(sync())
        return
    own(sync())


def main():
    threads, rounds = int(sys.argv[1]), int(sys.argv[2])
    for wave in range(3):
        running = [Thread(rounds) for _ in range(threads + wave)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    lines = [[*line, count] for line, count in COUNTS.items()]
    with open(os.environ["SELF_LOG"], "a") as log:
        log.write(json.dumps({"pid": os.getpid(), "lines": lines, "gil": gil}) + "\n")


main()
