"""A training loop on the simulated GPU whose callbacks name epochs and steps, by the protocol and no package.

What it does it logs by its own clock, as JSON in SELF_LOG.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

from cuda import Cuda

SENDER = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
SENDER.settimeout(5)  # the log is the oracle: each message has to arrive, also where the queue of ten is full
ADDRESS = os.environ.get("GPUTOP_ANNOTATE", "/run/gputop/annotate.sock").replace("@", "\0", 1)
LOG: list[tuple[str, int, int, int]] = []


def gputop(**said: object) -> None:
    said["thread"] = threading.get_native_id()
    SENDER.sendto(json.dumps(said).encode(), ADDRESS)


class Range:
    """A range, and what the program's own clock says of it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.begin = time.monotonic_ns()
        gputop(begin=self.name)

    def __exit__(self, *_: object) -> None:
        gputop(end=self.name)
        LOG.append((self.name, threading.get_native_id(), self.begin, time.monotonic_ns()))


def main() -> None:
    cuda = Cuda()
    for epoch in range(2):
        with Range(f"epoch {epoch}"):
            for _ in range(int(sys.argv[1])):
                with Range("step"):
                    cuda.launch(500_000)
                    cuda.DeviceSynchronize()
                    with Range("log"):
                        until = time.monotonic() + 0.004
                        while time.monotonic() < until:
                            pass
    with open(os.environ["SELF_LOG"], "a") as file:
        print(json.dumps({"ranges": LOG}), file=file)


if __name__ == "__main__":
    main()
