"""Calls CUDA from every kind of Python line, and counts by itself which line made how many calls.

``own(sync())`` stand on one line each time, so that both are the same line. The counts of each process go
to SELF_LOG. Arguments: rounds, and ``late`` to wait for a line on standard input first, ``endless`` to go on
until there is one, ``child`` to fork, then to start itself once more.
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
from collections import Counter

RUNTIME = ctypes.CDLL(os.environ.get("TEST_CUDART", "libcudart.so.12"))
HELD = ctypes.PyDLL(os.environ.get("TEST_CUDART", "libcudart.so.12"))  # keeps the GIL
LIBC = ctypes.CDLL(None)
sync, sync_held = RUNTIME.cudaDeviceSynchronize, HELD.cudaDeviceSynchronize
COUNTS = Counter()
LOCK = threading.RLock()  # a handler of signals counts as well, and may be called while it is held


def own(_result):
    frame = sys._getframe(1)
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    with LOCK:
        COUNTS[code.co_filename, frame.f_lineno, name] += 1


def twice():
    own(sync())
    own(sync_held())


def generator(n):
    for _ in range(n):
        own(sync())
        yield


def delegating():
    yield from generator(3)
    own(sync())
    yield


async def coroutine(depth):
    own(sync())
    if depth:
        await coroutine(depth - 1)
        own(sync())
    await asyncio.sleep(0)
    own(sync())


async def ticker():
    for _ in range(3):
        own(sync())
        yield 1


async def gathered():
    await asyncio.gather(*(coroutine(depth) for depth in range(5)))
    async for _ in ticker():
        own(sync())
    return [own(sync()) async for _ in ticker()]


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        own(sync())
        return function(*arguments)

    return wrapper


@decorated
@decorated
def inner(n):
    own(sync())
    return n


def recursive(n):
    if n == 0:
        own(sync())
        return
    recursive(n - 1)
    if n % 16 == 0:
        own(sync())


class Guard:
    def __enter__(self):
        own(sync())

    def __exit__(self, *_):
        own(sync())

    def __init__(self):
        own(sync())

    @property
    def value(self):
        own(sync())
        return 1

    def __lt__(self, other):
        own(sync())
        return True

    def __getattr__(self, name):
        own(sync())
        return name

    def __del__(self):
        own(sync())


@contextlib.contextmanager
def managed():
    own(sync())
    try:
        yield
    finally:
        own(sync())


def compare(left, right):
    own(sync())
    return left.contents.value - right.contents.value


def through_c():
    numbers = (ctypes.c_int * 8)(5, 3, 8, 1, 7, 2, 6, 4)
    pointer = ctypes.POINTER(ctypes.c_int)
    LIBC.qsort(numbers, 8, 4, ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)(compare))
    sorted(range(5), key=lambda n: (own(sync()), n)[1])
    list(map(inner, range(3)))
    assert min([Guard(), Guard()]).missing
    functools.reduce(lambda a, b: (own(sync()), b)[1], range(4))


def comprehensions():
    [own(sync()) for _ in range(3)]
    {n: own(sync()) for n in range(3)}
    [[own(sync()) for _ in range(2)] for _ in range(2)]
    sum(own(sync()) or 1 for _ in range(3))


def raising():
    try:
        own(sync())
        raise ValueError
    except ValueError:
        own(sync())
    finally:
        own(sync())


def executed(n):
    """Code whose address is used again at once, in two shapes."""
    for number in range(n):
        blank = "\n" * (number % 7)
        exec(f"{blank}def made_{number % 3}():\n    own(sync())\nmade_{number % 3}()", globals())
        eval(compile(f"{blank}own(sync())", f"<made {number % 5}>", "eval"))


LONG = (
    "def long(n):\n"
    + "".join(f"    x{number} = n + {number}; y = x{number} * n - {number}\n" for number in range(1500))
    + "    own(sync())\n    if n: own(sync())\n"
)


def everything(rounds):
    here = {}
    exec(compile(LONG, "<long>", "exec"), globals(), here)
    for _ in range(rounds):
        twice()
        twice()
        list(generator(3))
        list(delegating())
        asyncio.run(gathered())
        inner(1)
        recursive(64)
        with Guard() as _, managed():
            own(sync())
        assert Guard().value
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
    if "endless" in sys.argv:
        line = threading.Thread(target=sys.stdin.readline)
        line.start()
        while line.is_alive():
            everything(1)
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


if __name__ == "__main__":
    main()
