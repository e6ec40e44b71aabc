"""The ``gputop`` program."""

from __future__ import annotations

import gc
import os
import signal
import sys

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def main() -> int:
    """Run the command line; return the exit status."""
    gc.disable()  # enabled by ``gputop.commands.cli`` or by the screen
    try:
        from gputop.process.isolation import complete, isolate

        complete()
        isolate()
        if _BLAS_THREADS not in os.environ:
            # numpy's BLAS starts a thread a processor, which gputop does not need; putenv, since a
            # command's environment is made of os.environ
            os.putenv(_BLAS_THREADS, "1")
        from gputop.commands.cli import run

        return run(sys.argv[1:], own_process=True)
    except KeyboardInterrupt:
        return 130
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of Python's own cleanup


if __name__ == "__main__":
    sys.exit(main())
