"""Launches kernels by each function of runtime and driver that launches one, in a shape of its own."""

import ctypes
import sys

driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
POINTER, ref = ctypes.c_void_p, ctypes.byref


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class Runtime(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = [
        ("grid", Dim3), ("block", Dim3), ("shared", ctypes.c_size_t), ("stream", POINTER),
        ("attributes", POINTER), ("count", ctypes.c_uint),
    ]  # fmt: skip


class Driver(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", Dim3), ("block", Dim3), ("shared", ctypes.c_uint), ("stream", POINTER),
        ("attributes", POINTER), ("count", ctypes.c_uint),
    ]  # fmt: skip


def made(function: str, *arguments: object) -> POINTER:
    """What a function leaves at its first argument."""
    out = POINTER()
    assert getattr(driver, function)(ref(out), *arguments) == 0
    return out


assert runtime.cudaFree(None) == 0
kernel = made("cuModuleGetFunction", made("cuModuleLoadData", b"x"), b"by_driver")
host = ctypes.CFUNCTYPE(None)(lambda: None)
registered = runtime.__cudaRegisterFatBinary
registered.restype = POINTER
module = registered(ctypes.create_string_buffer(64))
runtime.__cudaRegisterFunction(
    POINTER(module), host, b"by_runtime", b"by_runtime", -1, None, None, None, None, None
)
ns = ctypes.c_uint64(1000)
arguments = (POINTER * 1)(ctypes.addressof(ns))
size = ctypes.c_size_t
for number in range(1, 4):
    grid, block = Dim3(number, 2, 3), Dim3(32, 4, 2)
    assert runtime.cudaLaunchKernel(host, grid, block, arguments, size(16 * number), None) == 0
    assert runtime.cudaLaunchCooperativeKernel(host, block, Dim3(number, 1, 1), arguments, size(0), None) == 0
    config = Runtime(Dim3(100 + number, 1, 1), Dim3(64, 1, 1), 4096 + number, None, None, 0)
    assert runtime.cudaLaunchKernelExC(ref(config), host, arguments) == 0
    sizes = 1000 * number, 5, 6, 16, 2, 8, 49152
    assert driver.cuLaunchKernel(kernel, *sizes, None, arguments, None) == 0
    assert driver.cuLaunchCooperativeKernel(kernel, 7, 8, 9, number, 2, 3, 10, None, arguments) == 0
    single = Driver(Dim3(1 << 20, number, 1), Dim3(1024, 1, 1), 232448, None, None, 0)
    assert driver.cuLaunchKernelEx(ref(single), kernel, arguments, None) == 0
assert runtime.cudaDeviceSynchronize() == 0
