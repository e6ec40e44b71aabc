"""Ends a program while its interpreter is whole.

A thread of autograd may still let go of tensors when the interpreter ends. It is then made to end in the
midst of C++, which aborts the process: pytorch/pytorch#190489, on any GPU.
"""

import atexit
import ctypes
import sys


def leave() -> None:
    """Ends the process, with what was registered in Python and in C, but not the interpreter."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    ctypes.CDLL(None).exit(0)
