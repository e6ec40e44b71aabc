"""Demo programs with needless copies between host and device, and the same without."""

from __future__ import annotations

import numpy as np

from gputop.demo.cuda import Kernel
from gputop.demo.torchlike import Torch
from gputop.demo.workload import Steps

_ROWS, _COLUMNS = 8, 100_000  # scores that are masked, row by row
_TENSORS, _NUMBERS = 160, 512  # tensors of a step, and numbers in each


def _model(count: int, ns: int) -> list[Kernel]:
    """Return many launches of one kernel that lasts ``ns``."""
    return [Kernel(ns)] * count


def numpy_sync(steps: Steps) -> int:
    """A mask function with .cpu().numpy() in a loop: NumPy works row by row while the GPU is idle."""
    torch, forward, backward = Torch(), _model(6, 300_000), _model(6, 400_000)
    scores = np.random.default_rng(1).random((_ROWS, _COLUMNS), np.float32)
    mask = np.ones((_ROWS, _COLUMNS), np.uint8)
    done = 0
    for _ in steps:
        torch.launch(forward)
        for row, kept in zip(scores, mask, strict=True):
            torch.numpy(row)
            kept[np.argsort(row)[: _COLUMNS // 2]] = 0
        torch.cuda(mask)
        torch.launch(backward)
        torch.item_of_step_before()
        done += 1
    torch.finish()
    return done


def numpy_sync_fixed(steps: Steps) -> int:
    """The same with the mask made on the device (sort, scatter), and one small read a step, a step later."""
    torch, forward, backward = Torch(), _model(6, 300_000), _model(6, 400_000)
    masking = _model(2, 150_000)
    done = 0
    for _ in steps:
        torch.launch(forward)
        torch.launch(masking)
        torch.launch(backward)
        torch.item_of_step_before()
        done += 1
    torch.finish()
    return done


def redundant_to_device(steps: Steps) -> int:
    """Tensors made on the CPU and moved with .to(device), one by one: hundreds of small copies a step."""
    torch, model = Torch(), _model(10, 250_000)
    done = 0
    for step in steps:
        for _ in range(_TENSORS):
            torch.cuda(np.array([float(step)] * _NUMBERS, np.float32))
        torch.launch(model)
        torch.item_of_step_before()
        done += 1
    torch.finish()
    return done


def redundant_to_device_fixed(steps: Steps) -> int:
    """The same with the tensors made on the device (device='cuda'): a fill kernel each, no copy."""
    torch, fills, model = Torch(), _model(_TENSORS, 2_000), _model(10, 250_000)
    done = 0
    for _ in steps:
        torch.launch(fills)
        torch.launch(model)
        torch.item_of_step_before()
        done += 1
    torch.finish()
    return done
