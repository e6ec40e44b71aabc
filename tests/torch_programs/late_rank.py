"""Two ranks train a model and look at the loss after each step; one sleeps before it. Arguments: STEPS MS."""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LATE = 1


def train(rank: int, ranks: int, steps: int, seconds: float) -> None:
    torch.cuda.set_device(rank)
    torch.set_num_threads(1)
    dist.init_process_group("nccl", init_method=os.environ["MEETING"], rank=rank, world_size=ranks)
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    slept = []
    for _ in range(steps):
        began = time.monotonic()
        time.sleep(seconds if rank == LATE else 0)
        slept.append(time.monotonic() - began)
        loss = model(torch.randn(32, 64, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    with open(os.environ["SELF_LOG"], "a") as log:
        log.write(json.dumps({"rank": rank, "ms": statistics.median(slept) * 1e3}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(2, int(sys.argv[1]), float(sys.argv[2]) / 1e3), nprocs=2)
