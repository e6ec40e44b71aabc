"""Calls CUDA from every kind of Python line, and counts by itself which line made how many calls.

``sync(); own()`` stand on one line each time, so that both are the same line. The counts of each process go
to SELF_LOG. Arguments: rounds, and ``late`` to wait for a line on standard input first.
"""

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter

RUNTIME = ctypes.CDLL(os.environ.get("TEST_CUDART", "libcudart.so.12"))
HELD = ctypes.PyDLL(os.environ.get("TEST_CUDART", "libcudart.so.12"))  # keeps the GIL
LIBC = ctypes.CDLL(None)
sync, sync_held = RUNTIME.cudaDeviceSynchronize, HELD.cudaDeviceSynchronize
COUNTS = Counter()
LOCK = threading.Lock()


def own():
    frame = sys._getframe(1)
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    with LOCK:
        COUNTS[code.co_filename, frame.f_lineno, name] += 1


def twice():
    sync(); own()
    sync_held(); own()


def generator(n):
    for _ in range(n):
        sync(); own()
        yield


def delegating():
    yield from generator(3)
    sync(); own()
    yield


async def coroutine(depth):
    sync(); own()
    if depth:
        await coroutine(depth - 1)
        sync(); own()
    await asyncio.sleep(0)
    sync(); own()


async def ticker():
    for _ in range(3):
        sync(); own()
        yield 1


async def gathered():
    await asyncio.gather(*(coroutine(depth) for depth in range(5)))
    async for _ in ticker():
        sync(); own()
    return [(sync(), own()) async for _ in ticker()]


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        sync(); own()
        return function(*arguments)
    return wrapper


@decorated
@decorated
def inner(n):
    sync(); own()
    return n


def recursive(n):
    if n == 0:
        sync(); own()
        return
    recursive(n - 1)
    if n % 16 == 0:
        sync(); own()


class Guard:
    def __enter__(self):
        sync(); own()

    def __exit__(self, *_):
        sync(); own()

    def __init__(self):
        sync(); own()

    @property
    def value(self):
        sync(); own()
        return 1

    def __lt__(self, other):
        sync(); own()
        return True

    def __getattr__(self, name):
        sync(); own()
        return name

    def __del__(self):
        sync(); own()


@contextlib.contextmanager
def managed():
    sync(); own()
    try:
        yield
    finally:
        sync(); own()


def compare(left, right):
    sync(); own()
    return left.contents.value - right.contents.value


def through_c():
    numbers = (ctypes.c_int * 8)(5, 3, 8, 1, 7, 2, 6, 4)
    pointer = ctypes.POINTER(ctypes.c_int)
    LIBC.qsort(numbers, 8, 4, ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)(compare))
    sorted(range(5), key=lambda n: (sync(), own(), n)[2])
    list(map(inner, range(3)))
    min([Guard(), Guard()]).missing
    functools.reduce(lambda a, b: (sync(), own(), b)[2], range(4))


def comprehensions():
    [(sync(), own()) for _ in range(3)]
    {n: (sync(), own()) for n in range(3)}
    [[(sync(), own()) for _ in range(2)] for _ in range(2)]
    list((sync(), own()) for _ in range(3))


def raising():
    try:
        sync(); own()
        raise ValueError
    except ValueError:
        sync(); own()
    finally:
        sync(); own()


def executed(n):
    """Code whose address is used again at once, in two shapes."""
    for number in range(n):
        blank = "\n" * (number % 7)
        exec(f"{blank}def made_{number % 3}():\n    sync(); own()\nmade_{number % 3}()", globals())
        eval(compile(f"{blank}(sync(), own())", f"<made {number % 5}>", "eval"))


LONG = "def long(n):\n" + "".join(
    f"    x{number} = n + {number}; y = x{number} * n - {number}\n" for number in range(1500)
) + "    sync(); own()\n    if n: sync(); own()\n"


def everything(rounds):
    here = {}
    exec(compile(LONG, "<long>", "exec"), globals(), here)
    for _ in range(rounds):
        twice()
        twice()
        list(generator(3)); list(delegating())
        asyncio.run(gathered())
        inner(1)
        recursive(64)
        with Guard() as _, managed():
            sync(); own()
        Guard().value
        through_c()
        comprehensions()
        raising()
        executed(10)
        here["long"](1)


def tell():
    rows = [[*key, count] for key, count in COUNTS.items()]
    with open(os.environ["SELF_LOG"], "a") as file:
        file.write(json.dumps({"pid": os.getpid(), "lines": rows}) + "\n")


def main():
    rounds = int(sys.argv[1])
    if "late" in sys.argv:
        sys.stdin.readline()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=everything, args=(rounds,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    everything(rounds)
    for thread in threads:
        thread.join()
    if "child" in sys.argv:
        pid = os.fork()
        if pid == 0:
            COUNTS.clear()
            everything(2)
            tell()
            os._exit(0)
        os.waitpid(pid, 0)
        subprocess.run([sys.executable, __file__, "1"], check=True)
    tell()
    if "stay" in sys.argv:
        time.sleep(60)


if __name__ == "__main__":
    main()
