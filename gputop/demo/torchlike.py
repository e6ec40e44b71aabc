"""The CUDA calls that PyTorch makes for a line of Python, on the default stream as PyTorch does.

Sources: aten/src/ATen/native/cuda/Copy.cu and CUDAScalar.cu, c10/cuda/CUDAFunctions.h (memcpy_and_sync).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gputop.demo.cuda import D2H, H2D, Cuda, Kernel
from gputop.demo.workload import MIB

Array = npt.NDArray[Any]
_ROOM = 16 * MIB  # the largest tensor of the workloads


class Torch:
    """One process's use of a GPU: kernels, reads, copies."""

    def __init__(self) -> None:
        self._cuda = Cuda()
        self._device = self._cuda.malloc(_ROOM)
        self._value = self._cuda.pinned(16)
        self._sent = self._cuda.event()
        self._read = [self._cuda.event() for _ in range(2)]
        self._reads = 0

    def launch(self, kernels: Sequence[Kernel]) -> None:
        """Operations on tensors that are on the device."""
        for kernel in kernels:
            self._cuda.launch(kernel)

    def numpy(self, target: Array) -> None:
        """``target = tensor.cpu().numpy()``: into pageable memory, and waits."""
        self._cuda.copy_async(target.ctypes.data, self._device, target.nbytes, D2H)
        self._cuda.synchronize()

    def item(self) -> None:
        """``tensor.item()``: four bytes through a pinned word, and waits."""
        self._cuda.copy_async(self._value, self._device, 4, D2H)
        self._cuda.synchronize()

    def item_of_step_before(self) -> None:
        """``t.to('cpu', non_blocking=True)`` behind an event, and waits for the one of the call before."""
        self._cuda.copy_async(self._value, self._device, 4, D2H)
        self._cuda.record(self._read[self._reads % 2])
        self._reads += 1
        if self._reads > 1:
            self._cuda.wait_event(self._read[self._reads % 2])

    def cuda(self, source: Array) -> None:
        """``tensor.to('cuda')``: waits also where the memory is pinned."""
        self._cuda.copy_async(self._device, source.ctypes.data, source.nbytes, H2D)
        self._cuda.synchronize()

    def cuda_non_blocking(self, source: Array) -> None:
        """``tensor.to('cuda', non_blocking=True)``; an event goes behind a pinned source."""
        self._cuda.copy_async(self._device, source.ctypes.data, source.nbytes, H2D)
        self._cuda.record(self._sent)

    def pinned(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """``torch.empty(shape, pin_memory=True)``."""
        size = int(np.prod(shape))
        return self._cuda.pinned_array(size).reshape(shape)

    def finish(self) -> None:
        """``torch.cuda.synchronize()``."""
        self._cuda.synchronize_device()
