"""A convolutional network in mixed precision, as the tutorials train it; says what it did."""

import json
import sys

import torch
from ending import leave
from torch import nn

device = "cuda" if torch.cuda.is_available() else sys.exit("no GPU")
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1, bias=False),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
).to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler(device)
steps = int(sys.argv[1])
for _ in range(steps):
    images = torch.randn(16, 3, 64, 64, device=device).to(memory_format=torch.channels_last)
    targets = torch.randint(0, 10, (16,), device=device)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(images), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
model.eval()
with torch.no_grad():
    found = model(torch.randn(16, 3, 64, 64, device=device)).argmax(1).cpu().numpy()
print(json.dumps({"steps": steps, "loss": loss.item(), "shape": found.shape}))
leave()
