"""What PyTorch does by itself where it is used so. Arguments: KIND before|after; see the functions."""

import gc
import io
import itertools
import sys
import time

import torch
from clock import Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset

KIND, WHICH = sys.argv[1:3]
BEFORE = WHICH == "before"
WIDTH, CACHED, SMALL = 1024, 2048, 2560  # SMALL: rows of a batch for which host and GPU take about as long


def perceptron(layers: int = 6) -> nn.Module:
    parts = [part for _ in range(layers) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*parts).cuda()


def train(model, optimizer, x):
    loss = model(x).square().mean()
    loss.backward()  # <- backward
    optimizer.step()
    optimizer.zero_grad()
    return loss


def parts(batch: int = 16384):
    model = perceptron()
    return model, torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(batch, WIDTH, device="cuda")


def loop(step) -> None:
    clock = Clock()
    while not clock.tick():
        step()
    torch.cuda.synchronize()
    clock.report()


# -- anomaly mode ----


def anomaly_switch() -> None:
    torch.autograd.set_detect_anomaly(BEFORE)
    model, optimizer, x = parts()
    loop(lambda: train(model, optimizer, x))


def anomaly_context() -> None:
    model, optimizer, x = parts()

    def step() -> None:
        with torch.autograd.set_detect_anomaly(BEFORE):
            train(model, optimizer, x)

    loop(step)


def anomaly_convolution() -> None:
    torch.autograd.set_detect_anomaly(BEFORE)
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(12)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 32, 64, 64, device="cuda")
    loop(lambda: train(model, optimizer, x))


# -- workers are started anew ----


class Points(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, row: int) -> torch.Tensor:
        return torch.full((WIDTH,), float(row))


class Slow(Points):
    def __getitem__(self, row: int) -> torch.Tensor:
        time.sleep(0.001)  # a file on a network
        return super().__getitem__(row)


def epochs(data: Dataset, **more) -> None:
    model, optimizer, _ = parts()
    loader = DataLoader(data, batch_size=16, num_workers=2, persistent_workers=not BEFORE, **more)

    def epoch() -> None:
        for batch in loader:  # <- loader
            train(model, optimizer, batch.cuda(non_blocking=True).repeat(256, 1))

    loop(epoch)


def workers_fork() -> None:
    epochs(Points())


def workers_pinned() -> None:
    epochs(Points(), pin_memory=True)


def workers_slow() -> None:
    epochs(Slow(), prefetch_factor=2)


# -- reads that PyTorch makes by itself ----


def index_table() -> None:
    model, optimizer, x = parts(SMALL)
    table = torch.arange(1000.0) if BEFORE else torch.arange(1000.0, device="cuda")
    where = torch.zeros((), dtype=torch.long, device="cuda")[() if BEFORE else None]

    def step() -> None:
        train(model, optimizer, x + sum(range(60_000)))
        rate = table[where]  # <- reads
        x.mul_(rate + 1)

    loop(step)


def index_list() -> None:
    model, optimizer, x = parts(SMALL)
    names = list(range(1000))
    where = torch.zeros((), dtype=torch.long, device="cuda")

    def step() -> None:
        train(model, optimizer, x + sum(range(60_000)))
        if BEFORE:
            names[where]  # <- reads

    loop(step)


def index_mask() -> None:
    model, optimizer, x = parts(SMALL)

    def step() -> None:
        train(model, optimizer, x + sum(range(60_000)))
        if BEFORE:
            x[x[:, 0] > 0].sum()  # <- reads
        else:
            torch.where(x[:, :1] > 0, x, 0).sum()

    loop(step)


# -- torch.save, empty_cache ----


def saving(what) -> None:
    model, optimizer, x = parts()

    def step() -> None:
        train(model, optimizer, x)
        if BEFORE:
            torch.save(what(model, optimizer), io.BytesIO())  # <- saves

    loop(step)


def save_model() -> None:
    saving(lambda model, _optimizer: model.state_dict())


def save_both() -> None:
    saving(lambda model, optimizer: {"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def save_list() -> None:
    saving(lambda model, _optimizer: [parameter.detach() for parameter in model.parameters()])


def cache_each_step() -> None:
    model, optimizer, x = parts(CACHED)

    def step() -> None:
        train(model, optimizer, x)
        if BEFORE:
            torch.cuda.empty_cache()  # <- empties

    loop(step)


def cache_after_batch() -> None:
    model, _, x = parts(CACHED)
    model.eval()

    @torch.no_grad()
    def step() -> None:
        for _ in range(4):
            model(x).argmax(1)
            if BEFORE:
                torch.cuda.empty_cache()  # <- empties

    loop(step)


def release() -> None:
    if BEFORE:
        torch.cuda.empty_cache()  # <- empties


def cache_of_lengths() -> None:
    model, optimizer, x = parts(CACHED)
    lengths = itertools.cycle((2048, 1792, 1920))

    def step() -> None:
        train(model, optimizer, x[: next(lengths)])
        release()

    loop(step)


def cache_collected() -> None:
    model, optimizer, x = parts(CACHED)

    def step() -> None:
        for _ in range(4):
            train(model, optimizer, x)
        if BEFORE:
            gc.collect()  # <- collects: with PyTorch's objects it takes longer than the memory
            torch.cuda.empty_cache()

    loop(step)


# -- compiles in the loop ----


def compile_shapes() -> None:
    torch._dynamo.config.recompile_limit = 10_000
    model = torch.compile(perceptron(2), backend="eager", dynamic=not BEFORE)
    x = torch.randn(40_000, WIDTH, device="cuda")
    rows = 1000

    def step() -> None:
        nonlocal rows
        rows += 1
        model(x[:rows]).sum()  # <- compiles

    loop(step)


def compile_number() -> None:
    torch._dynamo.config.recompile_limit = 10_000
    torch._dynamo.config.specialize_float = BEFORE
    body = perceptron(2)
    scaled = torch.compile(lambda x, scale: body(x) * scale, backend="eager")
    x, number = torch.randn(16_384, WIDTH, device="cuda"), 0

    def step() -> None:
        nonlocal number
        number += 1
        scaled(x, float(number)).sum()  # <- compiles

    loop(step)


def compile_anew() -> None:
    body = perceptron(2)
    kept = torch.compile(body, backend="eager")
    x = torch.randn(16_384, WIDTH, device="cuda")

    def step() -> None:
        if BEFORE:
            torch._dynamo.reset()
        kept(x).sum()  # <- compiles

    loop(step)


globals()[KIND]()
