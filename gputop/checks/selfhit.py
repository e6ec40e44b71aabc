"""Calls a harmless function of a library in a child process, so that a probe on it must fire.

A library may belong to any user: it is whatever a process has mapped under the right name. Loading runs its
code, so libraries writable by other users are skipped by default, and the child is sandboxed first.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gputop.checks import selfhit_child
from probes import api
from probes.code import parsing
from probes.files import untrusted_files
from probes.process import sandbox

CALLS = 5
TIMEOUT_S = 10.0
_MARGIN_S = 5.0  # for the interpreter to start, and to end the child
_MOST_BYTES = 64 << 10  # of what it prints
_SHOWN = 200  # characters of an error
_DIGITS = 10  # more than a version has
_NO_ANSWER = f"no answer within {TIMEOUT_S:.0f} s"
# functions that make no context and wake no GPU: int f(int *version)
SYMBOLS = {
    api.RUNTIME: "cudaRuntimeGetVersion",
    api.DRIVER: "cuDriverGetVersion",
    api.NCCL: "ncclGetVersion",
}


@dataclass(frozen=True, slots=True)
class SelfCall:
    """Result of the child."""

    calls: int  # calls made, 0 when the library could not be loaded
    version: int  # the function's result, 0 if none
    error: str  # why no call was made, or ``""``
    withheld: bool = False  # not loaded because other users may have written it


def call(
    path: Path,
    symbol: str,
    calls: int = CALLS,
    *,
    identity: untrusted_files.Identity | None = None,
    any_owner: bool = False,
) -> SelfCall:
    """Load the library in a child and call ``symbol``.

    Args:
        path: The library.
        symbol: One of ``SYMBOLS``.
        calls: Number of calls.
        identity: Expected identity of the file; None for any.
        any_owner: Also load libraries writable by other users.
    """
    try:
        with untrusted_files.opened(path, identity) as file:
            doubt = "" if any_owner else parsing.doubt(path, file)
            if doubt:
                return SelfCall(0, 0, doubt, withheld=True)
            return call_from_child(file.descriptor, symbol, calls)
    except OSError as error:
        return SelfCall(0, 0, error.strerror or str(error))


def call_from_child(file: int, symbol: str, calls: int) -> SelfCall:
    """Call a function of a library in a sandboxed child."""
    packages = str(Path(sandbox.__file__).resolve().parents[2])
    # by descriptor: the child's user may not reach the path, and this is the file that was checked
    words = (packages, str(file), symbol, str(calls), str(TIMEOUT_S))
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", selfhit_child.__file__, *words],
        pass_fds=(file,),
        env={"PATH": os.defpath},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output, problem = _heard(child)
    if problem:
        return SelfCall(0, 0, problem)
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    if child.returncode == sandbox.TIMED_OUT:
        return SelfCall(0, 0, _NO_ANSWER)
    if child.returncode != 0:
        return SelfCall(0, 0, last[:_SHOWN] or f"ended with status {child.returncode}")
    return SelfCall(calls, int(last) if last.isdecimal() and len(last) < _DIGITS else 0, "")


def _heard(child: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Return (a child's output, why the wait was given up); the child and its group have ended then."""
    assert child.stdout is not None
    deadline = time.monotonic() + TIMEOUT_S + _MARGIN_S
    output, ended = b"", os.pidfd_open(child.pid)
    try:
        while _ready(child.stdout.fileno(), deadline):
            part = os.read(child.stdout.fileno(), _MOST_BYTES)
            if not part:
                problem = "" if _ready(ended, deadline) else _NO_ANSWER
                return output.decode(errors="replace"), problem
            output += part
            if len(output) > _MOST_BYTES:
                return "", f"it printed more than {_MOST_BYTES >> 10} KiB"
        return "", _NO_ANSWER
    finally:
        os.close(ended)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # before it is waited for: its number is still its own
        child.wait()
        child.stdout.close()


def _ready(descriptor: int, deadline: float) -> bool:
    return bool(select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))[0])


def shown_version(layer: str, version: int) -> str:
    """Return a version number of CUDA or NCCL in the usual form; ``""`` for none."""
    if version <= 0:
        return ""
    if layer == api.NCCL:
        return f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    return f"{version // 1000}.{version % 1000 // 10}"
