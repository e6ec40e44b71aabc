"""The ``gputop`` program."""

from __future__ import annotations

import gc
import os
import signal
import sys

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def main() -> int:
    """Runs the command line; returns the exit status."""
    gc.disable()  # there is no garbage yet: ``gputop.commands.cli`` or the screen lets it begin
    try:
        from gputop.process.isolation import complete, isolate

        complete()
        isolate()
        if _BLAS_THREADS not in os.environ:
            # numpy's library starts a thread a processor, for products of matrices that nobody asks for. A
            # command's environment is made of os.environ: this is no part of it
            os.putenv(_BLAS_THREADS, "1")
        from gputop.commands.cli import run

        return run(sys.argv[1:], own_process=True)
    except KeyboardInterrupt:  # before there was anybody to heed it
        return 130
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # what Python does at its end says nothing of it


if __name__ == "__main__":
    sys.exit(main())
