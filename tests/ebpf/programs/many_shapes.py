"""Launches a kernel once in each of many shapes, and once more in the first one."""

import ctypes
import sys

driver = ctypes.CDLL("libcuda.so.1")
POINTER, ref = ctypes.c_void_p, ctypes.byref


def made(function: str, *arguments: object) -> POINTER:
    """What a function leaves at its first argument."""
    out = POINTER()
    assert getattr(driver, function)(ref(out), *arguments) == 0
    return out


assert driver.cuInit(0) == 0
made("cuCtxCreate_v2", 0, 0)
kernel = made("cuModuleGetFunction", made("cuModuleLoadData", b"x"), b"many")
ns = ctypes.c_uint64(500)
arguments = (POINTER * 1)(ctypes.addressof(ns))
for blocks in (*range(1, int(sys.argv[1]) + 1), 1):
    assert driver.cuLaunchKernel(kernel, blocks, 1, 1, 32, 1, 1, 0, None, arguments, None) == 0
assert driver.cuCtxSynchronize() == 0
