"""Calls one harmless function of a library in a child process, so that a probe on it must be hit.

A library may belong to anybody: it is whatever some process has mapped under the right name. Loading it runs
its code, so the child first becomes a user without rights.
"""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from probes import api

CALLS = 5
_TIMEOUT_S = 10
_NOBODY = 65534
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
# functions that make no context and wake no GPU: int f(int *version)
SYMBOLS = {
    api.RUNTIME: "cudaRuntimeGetVersion",
    api.DRIVER: "cuDriverGetVersion",
    api.NCCL: "ncclGetVersion",
}
_CHILD = """
import ctypes, os, sys
file, symbol, calls, uid = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(uid, uid, uid)
version = ctypes.c_int(0)
try:
    function = getattr(ctypes.CDLL(f"/proc/self/fd/{file}"), symbol)
    for _ in range(calls):
        function(ctypes.byref(version))
except (OSError, AttributeError) as error:
    sys.exit(str(error))
print(version.value)
"""


@dataclass(frozen=True, slots=True)
class SelfCall:
    """What came of the child.

    Attributes:
        calls: Calls made, 0 when the library could not be loaded.
        version: What the function said, 0 if nothing.
        error: Why no call was made, or ``""``.
    """

    calls: int
    version: int
    error: str


def _without_rights() -> None:
    """In the child, before it executes: no file capability and no ambient one reaches the library."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def _user_for(status: os.stat_result) -> int | None:
    """As whom to run what is in a file: nobody if nobody can read it, else its owner. None: not at all."""
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if os.geteuid() != 0:  # we cannot become anybody else, so the file must be ours or root's
        return os.geteuid() if status.st_uid in (0, os.geteuid()) and not others_write else None
    if status.st_mode & stat.S_IROTH:
        return _NOBODY
    return None if others_write else status.st_uid or _NOBODY


def call(path: Path, symbol: str, calls: int = CALLS) -> SelfCall:
    """Loads the library in a child and calls ``symbol``."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return SelfCall(0, 0, error.strerror or str(error))
    try:
        uid = _user_for(os.fstat(file))
        if uid is None:
            return SelfCall(0, 0, "others than its owner may have written it")
        # by descriptor: the child's user may not reach the path, and it is the file that was looked at
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CHILD, str(file), symbol, str(calls), str(uid)],
            pass_fds=(file,),
            env={"PATH": os.defpath},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            preexec_fn=_without_rights,  # it takes no lock, so the fork may have threads
        )
    except subprocess.TimeoutExpired:
        return SelfCall(0, 0, f"no answer within {_TIMEOUT_S} s")
    except OSError as error:
        return SelfCall(0, 0, error.strerror or str(error))
    finally:
        os.close(file)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        return SelfCall(0, 0, words[-1][:200] if words else f"ended with status {done.returncode}")
    last = done.stdout.strip().splitlines()[-1:]
    return SelfCall(calls, int(last[0]) if last and last[0].lstrip("-").isdigit() else 0, "")


def shown_version(layer: str, version: int) -> str:
    """A version number of CUDA or NCCL as people write it; ``""`` for none."""
    if version <= 0:
        return ""
    if layer == api.NCCL:
        return f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    return f"{version // 1000}.{version % 1000 // 10}"
