"""Training on images with transforms in Python. Arguments: number of workers, ``pinned`` or ``pageable``."""

import itertools
import sys

import numpy as np
import torch
from clock import SEED, Clock, chosen
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORKERS, PINNED = int(sys.argv[1]), sys.argv[2] == "pinned"
BATCH, SIDE = chosen([24, 32, 40], "batch"), 96


class Images(Dataset):
    """Images that are cropped, flipped, jittered and normalised in NumPy."""

    def __init__(self) -> None:
        self.images = np.random.default_rng(SEED).integers(0, 255, (256, 128, 128, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int):
        rng = np.random.default_rng(index)
        image = self.images[index % len(self.images)]
        top, left = rng.integers(0, 128 - SIDE, 2)
        image = image[top : top + SIDE, left : left + SIDE].astype(np.float32) / 255  # <- cause
        if rng.random() < 0.5:
            image = image[:, ::-1]
        image = np.clip(image * rng.uniform(0.8, 1.2) + rng.normal(0, 0.02, image.shape), 0, 1)  # <- cause
        image = (image - image.mean((0, 1))) / (image.std((0, 1)) + 1e-6)  # <- cause
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1), dtype=np.float32)), index % 10


def main() -> None:
    torch.manual_seed(SEED)
    loader = DataLoader(
        Images(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=WORKERS,
        pin_memory=PINNED,
        drop_last=True,
        persistent_workers=WORKERS > 0,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).cuda()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    clock = Clock()
    for _epoch in itertools.count():
        for images, labels in loader:  # <- cause
            images = images.to("cuda", non_blocking=PINNED)
            labels = labels.to("cuda", non_blocking=PINNED)
            loss = loss_of(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if clock.tick():
                torch.cuda.synchronize()
                clock.report()
                return


main()
