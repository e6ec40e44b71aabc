"""Runs one workload: ``python -m gputop.demo NAME [SECONDS]``, with the CUDA libraries in the search path."""

from __future__ import annotations

import ctypes
import signal
import sys
import time

from gputop.demo.cuda import CudaError
from gputop.demo.stories import STORIES
from gputop.demo.workload import steps_until

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the program and print its steps; return the exit status."""
    arguments = sys.argv[1:]
    # end with the parent, instead of burning CPU
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    story = STORIES[arguments[0]]
    seconds = float(arguments[1]) if len(arguments) > 1 else None
    sys.stdout.write(f"{story.name}: {story.title}\n")
    sys.stdout.flush()
    began = time.monotonic()
    try:
        done = story.run(steps_until(began + seconds if seconds else None))
    except CudaError as error:
        sys.stderr.write(f"gputop demo: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(f"{story.name}: {done} steps in {time.monotonic() - began:.2f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
