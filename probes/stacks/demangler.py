"""A program of its own: reads mangled names, a line each, and writes their meaning, by the C++ library.

That library reads names that anybody may have written into a file, and one of some hundred characters may
stand for gigabytes. So it runs here, without rights and with little memory; its caller ends it when it is
slow.
"""

from __future__ import annotations

import ctypes
import sys

LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")
MEMORY_BYTES = 512 << 20  # of address space: an interpreter and the library need 100 MB of it
CPU_S = 120  # of all names together; then it is started anew


def demangler() -> ctypes._NamedFuncPointer | None:
    """The function of the C++ library; None where there is no such library."""
    for name in LIBRARIES:
        try:
            function = ctypes.CDLL(name).__cxa_demangle
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
        return function
    return None


def main(packages: str, most: int) -> None:
    """Answers until there is no more to read."""
    sys.path.append(packages)
    from probes.process import sandbox

    function = demangler()
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    sandbox.confine(sandbox.Limits(MEMORY_BYTES, CPU_S, files=8), sandbox.LOADING)
    sys.stdout.buffer.write(b"\n")  # ready
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        name, status = line.rstrip(b"\n"), ctypes.c_int(-1)
        text = function(name, None, None, ctypes.byref(status)) if function else None
        readable = ctypes.string_at(text)[:most] if text and status.value == 0 else name
        if text:
            free(text)
        sys.stdout.buffer.write(readable.replace(b"\n", b" ") + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
