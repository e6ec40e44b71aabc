"""Data-parallel training on two GPUs. Argument: ``straggler`` (one rank prepares more) or ``even``."""

import os
import sys
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from clock import SEED, Clock, chosen
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
BATCH, WIDTH, LAYERS = chosen([2048, 3072, 4096], "batch"), 2048, 6
LATE_S = 0.017
STEPS = int(float(os.environ.get("SECONDS", "5")) * 50)


def prepare(rank: int, how: str) -> None:
    """What a rank's own input costs it on the CPU."""
    until = time.thread_time() + LATE_S  # a processor may be three times as fast as another
    while how == "straggler" and rank == 1 and time.thread_time() < until:
        np.sort(np.random.default_rng(SEED).standard_normal(25_000))  # <- cause straggler


def train(rank: int, how: str, meeting: str) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=meeting, rank=rank, world_size=RANKS)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(BATCH, WIDTH, device="cuda")
    clock = Clock(seconds=0)
    for _ in range(STEPS):
        prepare(rank, how)
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    torch.cuda.synchronize()
    clock.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(sys.argv[1], f"file://{folder}/meeting"), nprocs=RANKS)
