"""An MLP learns from a DataLoader, as people write it; says what it did."""

import argparse
import json
import time

import torch
from ending import leave
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--optimizer", default="adamw", choices=["sgd", "adam", "adamw", "fused"])
parser.add_argument("--every", type=int, default=10, help="steps between two prints of the loss")
options = parser.parse_args()

data = TensorDataset(torch.randn(64 * options.steps, 256), torch.randint(0, 10, (64 * options.steps,)))
loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=options.workers, pin_memory=True)
model = nn.Sequential(
    nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
).cuda()
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
}
optimizer = OPTIMIZERS[options.optimizer](model.parameters())
loss_function = nn.CrossEntropyLoss()
steps, seen, begin = 0, 0.0, time.monotonic()
for inputs, targets in loader:
    inputs, targets = inputs.cuda(non_blocking=True), targets.cuda(non_blocking=True)
    loss = loss_function(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps % options.every == 0:
        seen += loss.item()
torch.cuda.synchronize()
print(json.dumps({"steps": steps, "loss": seen, "seconds": time.monotonic() - begin}))
leave()
