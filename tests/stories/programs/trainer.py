"""A transformer that trains well, and habits around it. Argument: a habit.

``plain``, ``accumulate`` (the optimizer steps every eighth micro-batch), ``evaluate`` (every hundredth step),
``checkpoint`` (every sixtieth step), ``churn`` (the cache of device memory is emptied each step), ``loader``
(batches come from two workers that are fast enough).
"""

import itertools
import sys
import tempfile
from pathlib import Path

import torch
from clock import SEED, Clock, chosen
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HABIT = sys.argv[1]
BATCH, TOKENS, WIDTH, LAYERS = chosen([40, 48, 56], "batch"), 256, 512, 4
MICRO_BATCHES, EVERY, BATCHES = 8, 60, 8


def model_of() -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).cuda()


def evaluate(model: nn.Module, batches: list[torch.Tensor]) -> float:
    model.eval()
    total = torch.zeros((), device="cuda")
    with torch.no_grad():
        for batch in batches:
            total += (model(batch) - batch).square().mean()
    model.train()
    return total.item() / len(batches)


def on_device():
    batches = [torch.randn(BATCH, TOKENS, WIDTH, device="cuda") for _ in range(BATCHES)]
    yield from itertools.cycle(batches)


def from_loader():
    rows = TensorDataset(torch.randn(16 * BATCH, TOKENS // 4, WIDTH))
    loader = DataLoader(rows, batch_size=BATCH, num_workers=2, pin_memory=True, persistent_workers=True)
    while True:
        for (batch,) in loader:
            yield batch.to("cuda", non_blocking=True).repeat(1, 4, 1)


def main() -> None:
    torch.manual_seed(SEED)
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    held_out = [torch.randn(BATCH, TOKENS, WIDTH, device="cuda") for _ in range(4)]
    clock = Clock()
    folder = tempfile.TemporaryDirectory(dir="/var/tmp")
    for step, batch in enumerate(from_loader() if HABIT == "loader" else on_device(), 1):
        loss = (model(batch) - batch).square().mean()
        if HABIT == "accumulate":
            (loss / MICRO_BATCHES).backward()
            if step % MICRO_BATCHES == 0:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        else:
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        if HABIT == "churn":
            del loss
            torch.cuda.empty_cache()  # <- cause churn
        elif step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
        if HABIT == "evaluate" and step % 100 == 0:
            print(f"step {step}: held out {evaluate(model, held_out):.4f}")
        if HABIT == "checkpoint" and step % EVERY == 0:
            torch.save(model.state_dict(), Path(folder.name) / "checkpoint.pt")  # <- cause checkpoint
        if clock.tick():
            break
    torch.cuda.synchronize()
    clock.report()


main()
