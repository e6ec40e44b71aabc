"""Asks the server, at random moments. Argument: requests a second."""

import contextlib
import os
import random
import socket
import sys
import time

RATE = float(sys.argv[1])
SOCKET = os.environ.get("SOCKET", "/tmp/server.socket")


def connected() -> socket.socket:
    while True:
        with contextlib.suppress(OSError):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(SOCKET)
            return connection
        time.sleep(0.05)


def main() -> None:
    print("asking", flush=True)
    rng = random.Random(os.environ.get("SEED", "1"))
    with connected() as connection, contextlib.suppress(BrokenPipeError):  # the server has gone
        while True:
            time.sleep(rng.expovariate(RATE))
            connection.sendall(b"?")
            if not connection.recv(16):
                return


main()
