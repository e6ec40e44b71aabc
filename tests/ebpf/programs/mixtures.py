"""Steps that launch kernels in different numbers and wait for them; two come in one proportion always."""

import ctypes
import random
import sys
import time

driver = ctypes.CDLL("libcuda.so.1")
POINTER, ref = ctypes.c_void_p, ctypes.byref
NS = {"gemm": 400_000, "norm": 90_000, "copy_kernel": 30_000, "left": 60_000, "right": 20_000}


def made(function: str, *arguments: object) -> POINTER:
    """What a function leaves at its first argument."""
    out = POINTER()
    assert getattr(driver, function)(ref(out), *arguments) == 0
    return out


assert driver.cuInit(0) == 0
made("cuCtxCreate_v2", 0, 0)
module = made("cuModuleLoadData", b"x")
kernels = {name: made("cuModuleGetFunction", module, b"simgpu_" + name.encode()) for name in NS}
seed, steps, mixed = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "mixed"
numbers = random.Random(seed)


def launch(name: str, blocks: int) -> None:
    """A kernel that takes its time for each 10 blocks."""
    ns = ctypes.c_uint64(int(NS[name] * blocks / 10 * numbers.uniform(0.97, 1.03)))
    arguments = (POINTER * 1)(ctypes.addressof(ns))
    assert driver.cuLaunchKernel(kernels[name], blocks, 1, 1, 128, 1, 1, 0, None, arguments, None) == 0


for _step in range(steps):
    for name, most in (("gemm", 6), ("norm", 12), ("copy_kernel", 12)):
        for _time in range(numbers.randint(1, most) if mixed else most):
            launch(name, numbers.choice((10, 20)) if mixed else 10)
    for _pair in range(numbers.randint(1, 4) if mixed else 2):
        launch("left", 10)
        launch("right", 10)
    assert driver.cuCtxSynchronize() == 0
    time.sleep(0.002)
