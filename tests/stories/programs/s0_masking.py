"""Pre-training of a masked autoencoder. Argument: ``before`` or ``after``."""

import sys

import numpy as np
import torch
from clock import SEED, Clock, chosen
from torch import nn

BATCH, PATCHES, PIXELS = chosen([64, 80, 96], "batch"), 196, 768
WIDTH, LAYERS, HEADS = 768, 3, 12
MASKED = 147


class MaskedAutoencoder(nn.Module):
    def __init__(self, on_device: bool) -> None:
        super().__init__()
        self.on_device = on_device
        self.embed = nn.Linear(PIXELS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.mask_token = nn.Parameter(torch.zeros(WIDTH))
        self.decode = nn.Linear(WIDTH, PIXELS)

    def mask_on_host(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(BATCH, PATCHES, device=x.device)
        order = torch.argsort(noise, dim=1)
        kept = order[:, : PATCHES - MASKED]
        masked = torch.zeros(BATCH, MASKED, dtype=torch.long, device=x.device)
        for i in range(BATCH):
            index = kept.cpu().numpy()[i]  # <- cause
            rest = np.setdiff1d(np.arange(PATCHES), index)
            masked[i] = torch.from_numpy(rest[:MASKED])
        x = x.clone()
        for i in range(BATCH):
            index = masked.cpu().numpy()[i]  # <- cause too
            x[i, index] = self.mask_token
        return x

    def mask_on_device(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(BATCH, PATCHES, device=x.device)
        order = torch.argsort(noise, dim=1)
        tail = order[:, PATCHES - MASKED :].unsqueeze(-1).expand(-1, -1, WIDTH)
        return x.scatter(1, tail, self.mask_token.expand(BATCH, MASKED, WIDTH))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.embed(images)
        x = self.mask_on_device(x) if self.on_device else self.mask_on_host(x)
        return ((self.decode(self.encoder(x)) - images) ** 2).mean()


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    model = MaskedAutoencoder(sys.argv[1] == "after").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    images = torch.randn(BATCH, PATCHES, PIXELS, device="cuda")
    clock = Clock()
    for step in range(10**6):
        loss = model(images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
        if clock.tick():
            break
    torch.cuda.synchronize()
    clock.report()


main()
