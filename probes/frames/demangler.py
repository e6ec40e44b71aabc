"""A program of its own: reads mangled names, a line each, and writes what they mean, by the C++ library.

That library reads what anybody may have written into a file, and a name of some hundred characters may stand
for gigabytes. So it runs here, without rights and with little memory; whoever asks ends it when it is slow.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys

LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")
MEMORY_BYTES = 512 << 20  # of address space: an interpreter and the library take 100 MB of it
CPU_S = 120  # of all names together; then it is started anew
NOBODY = 65534
_NO_NEW_PRIVS, _SET_DUMPABLE = 38, 4  # prctl(2)


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


def confine() -> None:
    """Gives up all rights, and more memory and time than names take."""
    libc = ctypes.CDLL(None)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    with contextlib.suppress(PermissionError):  # then these rights are not ours
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> None:
    """Answers until there is no more to read."""
    function = demangler()
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    most = int(sys.argv[1])
    confine()
    sys.stdout.buffer.write(b"\n")  # ready
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        name, status = line.rstrip(b"\n"), ctypes.c_int(-1)
        text = function(name, None, None, ctypes.byref(status)) if function else None
        said = ctypes.string_at(text)[:most] if text and status.value == 0 else name
        if text:
            free(text)
        sys.stdout.buffer.write(said.replace(b"\n", b" ") + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
