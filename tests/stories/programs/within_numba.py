"""Numba's kernels. Arguments: KIND before|after; see the functions."""

import sys
import warnings

import numpy as np
from clock import Clock
from numba import cuda

warnings.simplefilter("ignore")
KIND, WHICH = sys.argv[1:3]
BEFORE = WHICH == "before"
SIZE = 1 << 20


@cuda.jit
def add(a, b, out):
    row = cuda.grid(1)
    if row < out.size:
        out[row] = a[row] + b[row]


def loop(step) -> None:
    clock = Clock()
    while not clock.tick():
        step()
    cuda.synchronize()
    clock.report()


def arrays(count: int):
    made = [np.ones(SIZE, np.float32) for _ in range(count)]
    return made if BEFORE else [cuda.to_device(one) for one in made]


def arguments_three() -> None:
    a, b, out = arrays(3)

    def step() -> None:
        add[SIZE // 256, 256](a, b, out)  # <- copies
        cuda.synchronize()

    loop(step)


def arguments_one() -> None:
    """Two live on the device already; the result is an array of the host."""
    a, b = (cuda.to_device(np.ones(SIZE, np.float32)) for _ in range(2))
    (out,) = arrays(1)

    def step() -> None:
        add[SIZE // 256, 256](a, b, out)  # <- copies
        cuda.synchronize()

    loop(step)


def arguments_many() -> None:
    rows = [arrays(3) for _ in range(4)]

    def step() -> None:
        for a, b, out in rows:
            add[SIZE // 256, 256](a, b, out)  # <- copies
        cuda.synchronize()

    loop(step)


def made_anew() -> None:
    a, b, out = (cuda.to_device(np.ones(SIZE, np.float32)) for _ in range(3))

    def step() -> None:
        kernel = add
        if BEFORE:

            @cuda.jit
            def kernel(a, b, out):
                row = cuda.grid(1)
                if row < out.size:
                    out[row] = a[row] + b[row]

        kernel[SIZE // 256, 256](a, b, out)  # <- compiles
        cuda.synchronize()

    loop(step)


globals()[KIND]()
