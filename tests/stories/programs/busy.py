"""Training that keeps the GPU busy, or asks too little of it. Argument: see ``KINDS``."""

import sys

import torch
from clock import SEED, Clock, chosen
from torch import nn

KIND = sys.argv[1]


def fp32(model, x, optimizer):
    return model(x).square().mean()


def bf16(model, x, optimizer):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(x).square().mean()


def perceptron(width: int, layers: int) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts)


class Chain(nn.Module):
    """Element by element, one operation after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1024))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = torch.tanh(x * self.weight + 1.0)
            x = x.clone() * 0.5 + x.sigmoid()
        return x


KINDS = {
    "fp32": (fp32, lambda: perceptron(2048, 6), (chosen([8192, 12288, 16384], "rows"), 2048)),
    "bf16": (bf16, lambda: perceptron(4096, 6), (chosen([16384, 24576, 32768], "rows"), 4096)),
    "elementwise": (fp32, Chain, (chosen([16384, 24576, 32768], "rows"), 1024)),
    "tiny": (fp32, lambda: perceptron(32, 24), (chosen([16, 24, 32], "rows"), 32)),
}


def main() -> None:
    torch.manual_seed(SEED)
    loss_of, make, shape = KINDS[KIND]
    model = make().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(*shape, device="cuda")
    clock = Clock()
    for step in range(10**6):
        loss = loss_of(model, x, optimizer)  # <- cause
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
        if clock.tick():
            break
    torch.cuda.synchronize()
    clock.report()


main()
