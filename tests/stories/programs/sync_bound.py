"""A perceptron whose loop looks at its results each step. Argument: how, or ``rarely``."""

import functools
import json
import statistics
import sys
import tempfile
import time

import numpy as np
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
        guessed = out.argmax(1).cpu().numpy()  # <- cause metrics
        history.append(score(guessed, labels.cpu().numpy()))  # <- cause metrics too
    elif step % 100 == 0:
        history.append(loss.item())
        write_log(step)


def score(guessed: np.ndarray, right: np.ndarray) -> float:
    """The mean F1 score over the classes."""
    scores = []
    for label in range(10):
        hits = np.sum((guessed == label) & (right == label))
        wrong = np.sum(guessed == label) + np.sum(right == label)
        scores.append(2 * hits / max(wrong, 1))
    confusion = np.zeros((10, 10), dtype=np.int64)
    np.add.at(confusion, (right, guessed), 1)
    return float(np.mean(scores))


def time_layer(module: nn.Module, inputs: tuple, out: torch.Tensor) -> None:
    """Where does the time go? A hook behind each layer."""
    torch.cuda.synchronize()  # <- cause synchronize
    times[id(module)] = times.get(id(module), 0.0) + time.perf_counter()


def write_log(step: int) -> None:
    """A line for the dashboard."""
    last = history[-500:]
    line = {"step": step, "loss": last[-1], "mean": statistics.fmean(last), "best": min(last)}
    line["smooth"] = functools.reduce(lambda mean, value: 0.98 * mean + 0.02 * value, last)
    line["spread"] = statistics.pstdev(last)
    line["curve"] = [round(value, 4) for value in last]
    log.write(json.dumps(line) + "\n")


history: list[float] = []
times: dict[int, float] = {}
log = tempfile.TemporaryFile("w")  # noqa: SIM115


def main() -> None:
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10)).cuda()
    if HOW == "synchronize":
        for layer in model:
            layer.register_forward_hook(time_layer)
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
