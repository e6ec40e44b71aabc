"""What one thread frees is used by the next one, and what is large goes back to the kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import HANGS_S

_ARENAS = """
import ctypes, re, sys, threading
from gputop.engine.malloc_tuning import share_freed
if sys.argv[1] == "shared":
    share_freed()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def take():
    libc.malloc(100_000)
    ready.wait()
ready = threading.Barrier(5)
threads = [threading.Thread(target=take) for _ in range(4)]
for one in threads:
    one.start()
ready.wait()
libc.malloc_stats()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
@pytest.mark.parametrize(("how", "arenas"), [("shared", 1), ("usual", 5)])
def test_threads_share_what_is_freed(how: str, arenas: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ARENAS, how], stderr=subprocess.PIPE, text=True, check=True, timeout=HANGS_S
    )
    assert done.stderr.count("Arena ") == arenas


_LARGE = """
import ctypes, sys
from gputop.engine.malloc_tuning import share_freed
if sys.argv[1] == "shared":
    share_freed()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(16 << 20))
places = [libc.malloc(4 << 20) for _ in range(3)]
heap = [line.split()[0].split("-") for line in open("/proc/self/maps") if "[heap]" in line]  # may be several
print(sum(int(low, 16) <= place < int(high, 16) for place in places for low, high in heap))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_large_array_lies_beside_the_heap_also_after_a_larger_one() -> None:
    def in_heap(how: str) -> int:
        command = [sys.executable, "-c", _LARGE, how]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=HANGS_S)
        return int(done.stdout)

    assert [in_heap("shared") for _ in range(3)] == [0, 0, 0]
