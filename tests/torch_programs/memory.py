"""A loop that trains, and what goes wrong with memory: ``healthy``, ``leak``, ``full``, ``huge``."""

import sys
import time

import torch
from ending import leave
from torch import nn

GIB = 1 << 30
kept = []


def train(model, optimizer, inputs):
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def remember(inputs):
    kept.append(torch.empty(48 << 20, dtype=torch.uint8, device="cuda"))


def fill():
    kept.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))


def main(mode):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    end = time.monotonic() + 8
    while time.monotonic() < end and mode in ("healthy", "leak"):
        train(model, optimizer, torch.randn(64, 256).cuda())
        if mode == "leak":
            remember(model)
        time.sleep(0.05)
    try:
        while mode == "full":
            fill()
        if mode == "huge":
            kept.append(torch.empty(100 * GIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        time.sleep(0.5)
    torch.cuda.synchronize()
    print(torch.cuda.max_memory_reserved(), flush=True)


main(sys.argv[1])
leave()
