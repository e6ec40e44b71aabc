"""Training loops with one fault each, before and after its fix. Arguments: NAME before|after."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from measured import serve, sized
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAME, AFTER = sys.argv[1], sys.argv[2] == "after"
WIDTH = 1024


def perceptron(width: int, layers: int) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts).cuda()


def trained(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Rows(Dataset):
    """Rows that are scaled and shuffled one by one in Python."""

    def __init__(self) -> None:
        self.rows = np.random.default_rng(1).random((4096, WIDTH), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> torch.Tensor:
        row = self.rows[place]
        row = (row - row.mean()) / (row.std() + 1e-6)  # <- loader
        return torch.from_numpy(np.roll(row, place % 7).copy())  # <- loader


def loader() -> Callable[[], object]:
    train = trained(perceptron(WIDTH, 8))
    if AFTER:
        rows = torch.from_numpy(Rows().rows).cuda()
        rows = (rows - rows.mean(1, keepdim=True)) / (rows.std(1, keepdim=True) + 1e-6)
        return lambda: train(rows[torch.randint(len(rows), (256,), device="cuda")])
    batches = iter(())

    def step() -> None:
        nonlocal batches
        batch = next(batches, None)  # <- loader
        if batch is None:
            batches = iter(DataLoader(Rows(), batch_size=256, shuffle=True))
            batch = next(batches)  # <- loader
        train(batch.cuda())

    return step


def numpy_sync() -> Callable[[], object]:
    train = trained(perceptron(WIDTH, 8))
    x = torch.randn(64, WIDTH, device="cuda")

    def masked(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand_like(x)
        if AFTER:
            return x * (noise > 0.75)
        rows = []
        for row in range(len(x)):
            order = np.argsort(noise.cpu().numpy()[row])  # <- numpy-sync
            rows.append(order < WIDTH // 4)
        return x * torch.from_numpy(np.stack(rows)).cuda()

    return lambda: train(masked(x))


def device_copies() -> Callable[[], object]:
    train = trained(perceptron(WIDTH, 4))
    host = torch.rand(8192, WIDTH)
    held = host.to("cuda")

    def step() -> None:
        train(held if AFTER else host.to("cuda"))  # <- device-copies

    return step


def launches() -> Callable[[], object]:
    model = perceptron(64, 24)
    train = trained(model)
    x = torch.randn(32, 64, device="cuda")
    if not AFTER:
        return lambda: train(x)  # <- launches
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train(x)
    return graph.replay


def compute() -> Callable[[], object]:
    def make(rows: int) -> Callable[[], object]:
        weight = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        x = torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16)

        def step() -> None:
            y = x
            for _ in range(4):
                y = torch.relu(y @ weight)

        return step

    return sized(make, 4096)


def memory() -> Callable[[], object]:
    def make(rows: int) -> Callable[[], object]:
        x = torch.randn(rows, 4096, device="cuda")

        def step() -> None:
            y = x
            for _ in range(8):
                y = torch.tanh(y * 0.5) + 1.0

        return step

    return sized(make, 4096)


def allocator() -> Callable[[], object]:
    train = trained(perceptron(WIDTH, 8))
    x = torch.randn(4096, WIDTH, device="cuda")

    def step() -> None:
        train(x)
        if not AFTER:
            torch.cuda.empty_cache()  # <- allocator

    return step


def checkpoint() -> Callable[[], object]:
    model = perceptron(2048, 8)
    train = trained(model)
    x = torch.randn(2048, 2048, device="cuda")
    folder = tempfile.TemporaryDirectory(dir="/var/tmp")
    count = 0

    def step() -> None:
        nonlocal count
        assert Path(folder.name).is_dir()
        train(x)
        count += 1
        if not AFTER and count % 20 == 0:
            torch.save(model.state_dict(), Path(folder.name) / "checkpoint.pt")  # <- checkpoint

    return step


MAKERS = {
    "loader": loader,
    "numpy-sync": numpy_sync,
    "device-copies": device_copies,
    "launches": launches,
    "compute": compute,
    "memory": memory,
    "allocator": allocator,
    "checkpoint": checkpoint,
}

serve(MAKERS[NAME])
