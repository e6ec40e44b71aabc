"""Everything that waits for the GPU or asks it something, once; says what it found."""

import json

import torch
from ending import leave

x = torch.randn(100, 100, device="cuda")
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    begin.record()
    torch.randn(1024, 1024, device="cuda") @ torch.randn(1024, 1024, device="cuda")
    end.record()
torch.cuda.current_stream().wait_stream(side)
end.synchronize()
pinned = torch.randn(1000, 1000).pin_memory()
moved = pinned.to("cuda", non_blocking=True)
torch.cuda.synchronize()
with torch.profiler.profile():
    torch.ones(8, device="cuda").sum().item()
found = {
    "name": torch.cuda.get_device_name(),
    "count": torch.cuda.device_count(),
    "item": x.max().item(),
    "numpy": x.cpu().numpy().shape,
    "rows": x.nonzero().shape,
    "mask": x[x > 0].shape,
    "text": len(str(x)) > 0,
    "milliseconds": begin.elapsed_time(end),
    "allocated": torch.cuda.memory_stats()["allocated_bytes.all.current"],
    "free": torch.cuda.mem_get_info()[0] < torch.cuda.mem_get_info()[1],
    "moved": tuple(moved.shape),
}
print(json.dumps(found))
leave()
