"""A small model, compiled by the backend that is named, trained for so many steps."""

from __future__ import annotations

import sys

import torch

model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).cuda()
compiled = torch.compile(model, backend=sys.argv[1])
batch = torch.randn(64, 256, device="cuda")
for _ in range(int(sys.argv[2])):
    compiled(batch).sum().backward()
torch.cuda.synchronize()
