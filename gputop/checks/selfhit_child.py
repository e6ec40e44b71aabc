"""Child process of ``gputop check`` that confines itself, loads a library and calls a function of it.

Args:
    The folder of gputop's packages; the library's descriptor; the function; number of calls; time limit, s.
"""

from __future__ import annotations

import ctypes
import sys


def main(packages: str, file: str, symbol: str, calls: str, seconds: str) -> int:
    """Print the function's result, or why it was not called; the status is 0 if it was."""
    sys.path.append(packages)  # the interpreter was started without any
    from probes.process import sandbox

    def work() -> int:
        version = ctypes.c_int(0)
        try:
            function = getattr(ctypes.CDLL(f"/proc/self/fd/{file}"), symbol)
            for _ in range(int(calls)):
                function(ctypes.byref(version))
        except (OSError, AttributeError) as error:
            print(error, flush=True)
            return 1
        print(version.value, flush=True)
        return 0

    return sandbox.run(work, sandbox.Limits(), sandbox.LOADING, float(seconds))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
