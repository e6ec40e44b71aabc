"""Two ranks train one model with DistributedDataParallel, each on a GPU of its own, or both on one."""

import json
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank: int, ranks: int, steps: int) -> None:
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl", init_method=os.environ["MEETING"], rank=rank, world_size=ranks)
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss = model(torch.randn(32, 64, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    # One write a line: two ranks share the pipe, and an unbuffered print writes its newline by itself.
    sys.stdout.write(json.dumps({"rank": rank, "loss": loss.item()}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(2, int(sys.argv[1])), nprocs=2)
