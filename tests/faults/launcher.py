"""launcher.py SOCKET: runs programs one after another; gputop watches it and so all of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from priority import own_session


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Runs one program to its end."""

    def before() -> None:
        own_session(job["nice"])
        for path in job["cgroups"]:
            with open(os.path.join(path, "cgroup.procs"), "w") as file:
                file.write("0")

    began = time.monotonic_ns()
    process = subprocess.Popen(job["argv"], env=job["env"], preexec_fn=before, stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=job["timeout_s"])
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
    return {
        "pid": process.pid,
        "status": process.returncode,
        "errors": errors.decode(errors="replace"),
        "began": began,
        "ended": time.monotonic_ns(),
    }


def main(path: str) -> None:
    """Answers each job, a line of JSON, with a line of JSON."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rw") as stream:
            for line in stream:
                stream.write(json.dumps(run(json.loads(line))) + "\n")
                stream.flush()


if __name__ == "__main__":
    main(sys.argv[1])
