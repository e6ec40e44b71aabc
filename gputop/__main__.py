"""The ``gputop`` program."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line; returns the exit status."""
    from gputop.isolation import isolate
    from gputop.standard_streams import complete

    complete()
    isolate()
    from gputop.cli import run

    return run(sys.argv[1:], own_process=True)


if __name__ == "__main__":
    sys.exit(main())
