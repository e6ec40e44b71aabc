"""Inference over rows in memory. Argument: ``loader``, ``workers``, ``direct`` or ``randperm``."""

import itertools
import sys

import torch
from clock import SEED, Clock, chosen
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS, COLUMNS, BATCH = 400_000, 100, chosen([8192, 12288, 16384], "batch")


def by_loader(rows, model, clock, **options):
    loader = DataLoader(TensorDataset(rows), batch_size=BATCH, shuffle=True, drop_last=True, **options)
    for _epoch in itertools.count():
        for (batch,) in loader:  # <- cause
            model(batch.cuda())
            if clock.tick():
                return


def by_slices(rows, model, clock):
    for first in itertools.cycle(range(0, ROWS - BATCH + 1, BATCH)):
        batch = rows[first : first + BATCH].cuda()  # <- cause direct
        model(batch)
        if clock.tick():
            return


def by_permutation(rows, model, clock):
    for _epoch in itertools.count():
        order = torch.randperm(ROWS)
        for first in range(0, ROWS - BATCH + 1, BATCH):
            batch = rows[order[first : first + BATCH]]  # <- cause randperm
            model(batch.cuda())
            if clock.tick():
                return


def main() -> None:
    torch.manual_seed(SEED)
    how = sys.argv[1]
    rows = torch.randn(ROWS, COLUMNS)
    model = nn.Sequential(
        nn.Linear(COLUMNS, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    model = model.cuda().eval()
    clock = Clock()
    with torch.no_grad():
        if how == "loader":
            by_loader(rows, model, clock)
        elif how == "workers":
            by_loader(rows, model, clock, num_workers=4, pin_memory=True, persistent_workers=True)
        elif how == "direct":
            by_slices(rows, model, clock)
        else:
            by_permutation(rows, model, clock)
    torch.cuda.synchronize()
    clock.report()


main()
