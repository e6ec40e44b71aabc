"""A transformer in bfloat16, attention of each kind and an LSTM; says what it did."""

import json
import sys

import torch
from ending import leave
from torch import nn

layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
encoder, recurrent = nn.TransformerEncoder(layer, 2).cuda(), nn.LSTM(64, 32, 2, batch_first=True).cuda()
parameters = [*encoder.parameters(), *recurrent.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-3)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    query = torch.randn(2, 4, 128, 64, device="cuda", dtype=dtype, requires_grad=True)
    nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
steps = int(sys.argv[1])
for _ in range(steps):
    words = torch.randn(8, 32, 64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = recurrent(encoder(words))[0].float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
encoder.eval()
with torch.no_grad():
    loss = encoder(torch.randn(8, 32, 64, device="cuda")).mean()
print(json.dumps({"steps": steps, "loss": loss.item()}))
leave()
