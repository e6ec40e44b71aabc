"""The ``gputop`` program."""

from __future__ import annotations

import gc
import signal
import sys


def main() -> int:
    """Runs the command line; returns the exit status."""
    gc.disable()  # there is no garbage yet: ``gputop.commands.cli`` or the screen lets it begin
    try:
        from gputop.process.isolation import isolate
        from gputop.process.standard_streams import complete

        complete()
        isolate()
        from gputop.commands.cli import run

        return run(sys.argv[1:], own_process=True)
    except KeyboardInterrupt:  # before there was anybody to heed it
        return 130
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # what Python does at its end says nothing of it


if __name__ == "__main__":
    sys.exit(main())
