"""Runs a query in a fork of this process, which can be killed at any time, and bounds its memory."""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

MORE_BYTES = 4 << 30


def bound_memory(more_bytes: int = MORE_BYTES) -> None:
    """Limit this process to so much more memory for its data.

    DuckDB counts the memory of its tables, not that of one long text made by a function: without this limit
    ``repeat('x', 3000000000)`` needs 6 GB. With it only the query fails. Memory that is only reserved, as by
    threads for their heaps, does not count.
    """
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (now + more_bytes, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))


_T = TypeVar("_T")
_GONE = "the process that computed it has ended (for want of memory?)"


def in_child(query: Callable[[], _T], seconds: float) -> _T:
    """Return the result of a query in a fork, or raise its exception.

    Args:
        query: Must use nothing that another thread may hold now.
        seconds: Time limit.

    Raises:
        TimeoutError: The limit was reached.
        MemoryError: The fork ended without a result.
    """
    end, begin = os.pipe2(os.O_CLOEXEC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which are not there in the fork
        child = os.fork()
    if child == 0:
        _answer(query, begin)
    os.close(begin)
    try:
        good, found = pickle.loads(_read(end, time.monotonic() + seconds))
    except EOFError:
        raise MemoryError(_GONE) from None
    finally:
        os.close(end)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not good:
        raise found
    return cast("_T", found)


def _answer(query: Callable[[], object], pipe: int) -> None:
    """Run the query in the fork, which ends here."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            result = True, query()
        except Exception as error:
            result = False, error.with_traceback(None)
        data = pickle.dumps(result)
        while data:
            data = data[os.write(pipe, data) :]
    finally:
        os._exit(0)


def _read(pipe: int, until: float) -> bytes:
    parts: list[bytes] = []
    while select.select([pipe], [], [], max(until - time.monotonic(), 0))[0]:
        if not (data := os.read(pipe, 1 << 20)):
            return b"".join(parts)
        parts.append(data)
    raise TimeoutError
