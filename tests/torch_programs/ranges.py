"""Steps whose parts are named by record_function, which emit_nvtx gives to NVTX, and by torch.cuda.nvtx.

``ranges.py STEPS``. What it does it logs by its own clock, as JSON in SELF_LOG: name, before, after.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator

import torch

LOG: list[tuple[str, int, int]] = []


@contextlib.contextmanager
def named(name: str, *, nvtx: bool = False) -> Iterator[None]:
    """A range, and what the program's own clock says of it."""
    before = time.monotonic_ns()
    with torch.cuda.nvtx.range(name) if nvtx else torch.profiler.record_function(name):
        yield
    LOG.append((name, before, time.monotonic_ns()))


def main() -> None:
    """Trains."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 256, device="cuda")
    with torch.autograd.profiler.emit_nvtx():
        for step in range(int(sys.argv[1])):
            with named(f"step {step}", nvtx=True):
                with named("forward"):
                    loss = model(x).sum()
                with named("backward"):
                    loss.backward()
                with named("optimizer"):
                    optimizer.step()
                    optimizer.zero_grad()
                with named("read the loss"):
                    loss.item()
    with open(os.environ["SELF_LOG"], "a") as file:
        print(json.dumps({"ranges": LOG}), file=file)


if __name__ == "__main__":
    main()
