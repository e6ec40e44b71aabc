"""A small PyTorch model and host work, or launches, before each step. Arguments: KIND before|after."""

import json
import sys

import torch
from clock import Clock
from torch import nn

KIND, WHICH = sys.argv[1:3]
BEFORE = WHICH == "before"
torch.set_num_threads(1)
TEXT = json.dumps([{"id": number, "name": f"user {number}"} for number in range(500)])
WORDS = list(range(6_000))


def encode_words() -> int:
    total = 0
    for word in WORDS:
        total += word * 17 % 512
    return total


def read_config() -> int:
    return len(json.loads(TEXT))


def scale_all(tensors) -> None:
    if not BEFORE:
        torch._foreach_mul_(tensors, 0.99)
        return
    for one in tensors:
        one.mul_(0.99)  # <- launches


def main() -> None:
    net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()
    x = torch.randn(512, 256, device="cuda")
    tensors = [torch.randn(64, device="cuda") for _ in range(150)]
    clock = Clock()
    while not clock.tick():
        if KIND == "tiny":
            scale_all(tensors)
        elif BEFORE:
            encode_words() if KIND == "encode" else read_config()
        with torch.no_grad():
            y = net(x)
        if KIND == "encode":
            y.sum().item()
        else:
            torch.cuda.synchronize()
    clock.report()


main()
