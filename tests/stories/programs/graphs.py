"""Many tiny kernels, launched one by one or as a CUDA graph. Argument: ``eager`` or ``graph``."""

import sys

import torch
from clock import SEED, Clock, chosen
from torch import nn

ROWS, WIDTH, LAYERS = chosen([16, 24, 32], "rows"), 64, 48


def main() -> None:
    torch.manual_seed(SEED)
    parts: list[nn.Module] = []
    for _ in range(LAYERS):
        parts += [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()]
    model = nn.Sequential(*parts).cuda().eval()
    x = torch.randn(ROWS, WIDTH, device="cuda")
    clock = Clock()
    with torch.no_grad():
        if sys.argv[1] == "graph":
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(3):
                    model(x)
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                model(x)
        while True:
            if sys.argv[1] == "graph":
                graph.replay()
            else:
                model(x)  # <- cause
            if clock.tick():
                break
    torch.cuda.synchronize()
    clock.report()


main()
