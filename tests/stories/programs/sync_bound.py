"""A perceptron whose loop looks at its results each step. Argument: how, or ``rarely``."""

import functools
import json
import statistics
import sys
import tempfile

import torch
from clock import SEED, Clock, chosen
from torch import nn

HOW = sys.argv[1]  # item, print, metrics, synchronize, rarely
BATCH, WIDTH, LAYERS = chosen([2560, 3072, 3584], "batch"), 1024, 6


def look(how: str, step: int, loss: torch.Tensor, out: torch.Tensor, labels: torch.Tensor) -> None:
    """What the author wants to know of each step."""
    if how == "item":
        history.append(loss.item())  # <- cause item
        write_log(step)
    elif how == "print":
        print(loss)  # <- cause print
    elif how == "metrics":
        right = out.argmax(1).cpu() == labels.cpu()  # <- cause metrics
        history.append(right.float().mean().item())
    elif how == "synchronize":
        torch.cuda.synchronize()  # <- cause synchronize
    elif step % 100 == 0:
        history.append(loss.item())
        write_log(step)


def write_log(step: int) -> None:
    """A line for the dashboard."""
    last = history[-2000:]
    line = {"step": step, "loss": last[-1], "mean": statistics.fmean(last), "best": min(last)}
    line["smooth"] = functools.reduce(lambda mean, value: 0.98 * mean + 0.02 * value, last)
    line["spread"] = statistics.pstdev(last)
    log.write(json.dumps(line) + "\n")


history: list[float] = []
log = tempfile.TemporaryFile("w")  # noqa: SIM115


def main() -> None:
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    inputs = torch.randn(BATCH, WIDTH, device="cuda")
    labels = torch.randint(0, 10, (BATCH,), device="cuda")
    clock = Clock()
    for step in range(10**6):
        out = model(inputs)
        loss = loss_of(out, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        look(HOW, step, loss.detach(), out.detach(), labels)
        if clock.tick():
            break
    torch.cuda.synchronize()
    clock.report()


main()
