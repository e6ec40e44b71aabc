"""Takes and frees memory of every kind in several threads at random, and keeps its own account by line.

Arguments: a seed, and how many moments. At moments when nobody is in a call all threads stand still, and what
each line holds is written to SELF_LOG with the time. Frees happen in any thread; some memory is never freed.
"""

import ctypes
import json
import os
import random
import sys
import threading
import time

from cuda import Cuda

ROUNDS, THREADS, DEEDS = int(sys.argv[2]) if len(sys.argv) > 2 else 12, 3, 14
MIB = 1 << 20
cuda = Cuda()
driver = ctypes.CDLL("libcuda.so.1")
for name in ("cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease"):
    getattr(driver, name).restype = ctypes.c_int
LOCK = threading.Lock()
PIECES = []  # (free, kind, line, size)
MAPPED = {}
random_of = {}
stream = cuda.stream()
base = ctypes.c_void_p()
assert driver.cuMemAddressReserve(ctypes.byref(base), ctypes.c_size_t(1 << 34), 0, 0, 0) == 0
places = list(range(base.value, base.value + (1 << 34), 64 * MIB))


def own(free, kind, line, size):
    with LOCK:
        PIECES.append((free, kind, line, size))


def made(call, *arguments):
    out = ctypes.c_void_p()
    code = call(ctypes.byref(out), *arguments)
    assert code == 0, (call, code)
    return out, sys._getframe(1).f_lineno


def plain(size):
    at, line = made(cuda.Malloc, ctypes.c_size_t(size))
    own(lambda: cuda.Free(at), "device", line, size)


def managed(size):
    at, line = made(cuda.MallocManaged, ctypes.c_size_t(size), 1)
    own(lambda: cuda.Free(at), "managed", line, size)


def pooled(size):
    at, line = made(cuda.MallocAsync, ctypes.c_size_t(size), stream)
    own(lambda: cuda.FreeAsync(at, stream), "pool", line, size)


def pinned(size):
    at, line = made(cuda.MallocHost, ctypes.c_size_t(size))
    own(lambda: cuda.FreeHost(at), "pinned", line, size)


def low(size):
    at, line = made(driver.cuMemAlloc_v2, ctypes.c_size_t(size))
    own(lambda: driver.cuMemFree_v2(at), "device", line, size)


def expandable(size):
    size = (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)
    handle, line = made(driver.cuMemCreate, ctypes.c_size_t(size), None, ctypes.c_ulonglong(0))
    with LOCK:
        at = places.pop(0)
    where = ctypes.c_void_p(at)
    assert driver.cuMemMap(where, ctypes.c_size_t(size), 0, handle, ctypes.c_ulonglong(0)) == 0
    early = size % (4 * MIB) == 0
    if early:  # the handle goes first, the memory only with its last mapping
        assert driver.cuMemRelease(handle) == 0

    def free():
        code = driver.cuMemUnmap(where, ctypes.c_size_t(size))
        with LOCK:
            places.append(at)
        return code if early else code or driver.cuMemRelease(handle)

    own(free, "physical", line, size)


def work(number, seed, barrier):
    chance = random.Random(seed * 100 + number)
    cuda.SetDevice(0)
    for _ in range(ROUNDS):
        for _ in range(DEEDS):
            if chance.random() < (0.55 if len(PIECES) < 90 else 0.4):
                chance.choice([plain, managed, pooled, pinned, low, expandable])(chance.randrange(1, 3 * MIB))
                continue
            with LOCK:
                piece = PIECES.pop(chance.randrange(len(PIECES))) if PIECES else None
            if piece:
                assert piece[0]() == 0
        barrier.wait()
        if number == 0:
            tell()
        barrier.wait()


def tell():
    held = {}
    for _free, kind, at, size in PIECES:
        held[f"{kind}:{at}"] = held.get(f"{kind}:{at}", 0) + size
    moment = time.monotonic_ns()
    with open(os.environ["SELF_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps({"pid": os.getpid(), "time_ns": moment, "held": held}) + "\n")


barrier = threading.Barrier(THREADS)
threads = [threading.Thread(target=work, args=(n, int(sys.argv[1]), barrier)) for n in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
