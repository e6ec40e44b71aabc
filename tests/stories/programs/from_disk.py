"""Training on samples in files, read past the page cache as where data is larger than memory."""

import itertools
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from clock import SEED, Clock, chosen
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORKERS = int(sys.argv[1])
BATCH, FILES, FLOATS = chosen([16, 24, 32], "batch"), 256, 96 * 1024


class Files(Dataset):
    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"{number:05d}.npy" for number in range(FILES)]
        sample = np.random.default_rng(SEED).standard_normal(FLOATS, dtype=np.float32)
        for path in self.paths:
            np.save(path, sample)
        os.sync()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int):
        with self.paths[index].open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            sample = np.load(file)  # <- cause too
        return torch.from_numpy(sample), index % 10


def main() -> None:
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        loader = DataLoader(
            Files(Path(folder)),
            batch_size=BATCH,
            shuffle=True,
            num_workers=WORKERS,
            persistent_workers=WORKERS > 0,
        )
        model = nn.Sequential(nn.Linear(FLOATS, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss_of = nn.CrossEntropyLoss()
        clock = Clock()
        for _epoch in itertools.count():
            for samples, labels in loader:  # <- cause
                loss = loss_of(model(samples.cuda()), labels.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if clock.tick():
                    torch.cuda.synchronize()
                    clock.report()
                    return


main()
