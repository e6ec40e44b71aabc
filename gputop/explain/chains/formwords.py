"""Titles and advice for each form of call, in PyTorch's words and in those of CUDA."""

from __future__ import annotations

from gputop.explain.chains.pytorch import Form


def how_often(times: float | None) -> str:
    """``every step``, ``every 10 steps``; ``in the loop`` where no steps are known."""
    if times is None or times <= 0:
        return "in the loop"
    return "every step" if times > 0.67 else f"every {max(round(1 / times), 2)} steps"


TITLES: dict[Form, str] = {
    "item": "`.item()` {often}",
    "size": "size of a result read {often} (`nonzero`, boolean mask)",
    "lookup": "scalar on the GPU used as an index on the CPU {often} (`x[i]`)",
    "read": "device-to-host read {often} (`.cpu()`, `.numpy()`)",
    "print": "`print(tensor)` {often}",
    "elements": "tensor read element by element",
    "scaler": "`GradScaler` reads `found_inf` {often}",
    "clip": "gradient norm read {often} (`clip_grad_norm_`)",
    "save": "`torch.save` of tensors on the GPU {often}",
    "batch": "blocking host-to-device copy {often} (`.to(device)`, `.cuda()`)",
    "index": "index tensor copied to the device {often} (`x[idx]`)",
    "made": "tensors made on the CPU and moved {often} (`.to(device)`)",
    "moved": "waits for tensors made on the CPU and moved {often} (`.to(device)`)",
    "small": "many small host-to-device copies",
    "device": "`torch.cuda.synchronize()` {often}",
    "event": "`event.synchronize()` {often}",
    "stream": "`stream.synchronize()` {often}",
    "sync": "explicit synchronisation {often}",
}

_MADE = (
    "tensors of {size} are made on the CPU and copied {times} (.to(device)): create them on the GPU "
    "(device=x.device in torch.arange, torch.zeros, torch.tensor)",
    "or pack them into one pinned tensor and copy that once, with non_blocking=True",
)
ADVICE: dict[Form, tuple[str, ...]] = {
    "item": (
        "a value of at most {size} is read {times} (.item(), float(t), if t:): keep it on the device and "
        "read it every n steps",
        "or copy it with non_blocking=True into pinned memory and look at it a step later, behind an event",
    ),
    "size": (
        "the host waits {times} to learn how many elements are left (nonzero, x[mask], unique): keep the "
        "shape fixed instead: torch.where(mask, x, 0), x * mask, or nonzero_static(size=n)",
    ),
    "lookup": (
        "what is indexed lies on the CPU and the index on the GPU, so the host waits for it {times}: keep "
        "both on the GPU (x.cuda() once before the loop), or the index on the host",
    ),
    "read": (
        "{size} are copied to the host {times} (.cpu(), .numpy(), .tolist()), and the host works on them "
        "while the GPU is idle: do it on the GPU, without .cpu() and .numpy() (masking, sorting, scatter run "
        "there)",
        "what must stay on the host: gather it and copy once per step, or work on the step before while "
        "this one runs",
    ),
    "print": ("a tensor on the device is printed element by element: print t.cpu(), and rarely",),
    "elements": (
        "a tensor on the device is read element by element, in a loop over it or by indices: copy it to the "
        "host once (t.cpu(), t.tolist()) and read it there",
    ),
    "scaler": (
        "GradScaler.step() waits {times} for found_inf: use bfloat16, which needs no scaler, or an "
        "optimizer with fused=True, which takes found_inf on the device",
    ),
    "clip": (
        "clip_grad_norm_ waits {times} for the norm: leave error_if_nonfinite=False, and do not read what "
        "it returns",
    ),
    "save": (
        "torch.save copies tensors to the host one after the other and writes a file while the GPU is idle: "
        "save less often",
        "or copy them with non_blocking=True into pinned memory and write them in a thread of its own "
        "(torch.distributed.checkpoint.async_save)",
    ),
    "batch": (
        "{size} are copied from pageable memory {times}, and the host waits for each copy: copy from pinned "
        "memory with non_blocking=True (tensor.pin_memory(), or pin_memory=True in the DataLoader)",
    ),
    "index": (
        "an index of {size} on the CPU is copied to the device {times}, and the host waits for it: make it "
        "there (device=x.device in torch.arange, torch.randperm, torch.tensor), or move it once before the "
        "loop",
    ),
    "made": _MADE,
    "moved": _MADE,
    "small": (
        "copies of {size} go to the device {times} (.to(device) of tensors built on the CPU): create the "
        "tensors on the GPU (device='cuda' in torch.zeros, torch.arange, torch.tensor)",
        "or pack them into one pinned tensor and copy that once, with non_blocking=True",
    ),
    "device": (
        "the host waits for all work {times}: remove torch.cuda.synchronize() from the loop; to time it, "
        "record two events and read them after the loop",
    ),
    "event": ("the host waits for the event {times}: wait for the event of the step before instead",),
    "stream": (
        "the host waits for the stream {times}: order streams with stream.wait_event(), which does not "
        "block the host",
    ),
    "sync": (
        "the host waits for the GPU {times} before it goes on: remove the synchronisation "
        "(torch.cuda.synchronize(), a timing), or wait for an event of the step before",
    ),
}

# of a program without PyTorch: what its calls are, and nothing that it has not
PLAIN_TITLES: dict[Form, str] = {
    "item": "scalar read back {often}",
    "size": "scalar read back {often}",
    "lookup": "scalar read back {often}",
    "read": "device-to-host read {often}",
    "elements": "values read back one by one",
    "arguments": "host arrays as arguments of kernels {often}",
    "batch": "blocking host-to-device copy {often}",
    "index": "blocking host-to-device copy {often}",
    "made": "data made on the CPU and copied {often}",
    "moved": "waits for data made on the CPU and copied {often}",
    "small": "many small host-to-device copies",
    "device": "device synchronisation {often}",
    "event": "event synchronisation {often}",
    "stream": "stream synchronisation {often}",
    "sync": "explicit synchronisation {often}",
}
_PLAIN_MADE = (
    "{size} are made on the CPU and copied {times}: create them there, or copy them once before the loop",
    "or pack them into one page-locked buffer and copy that once, asynchronously",
)
_PLAIN_ITEM = (
    "a value of at most {size} is read {times}: keep it on the device and read it every n steps",
    "or copy it asynchronously into page-locked memory and read it a step later, behind an event",
)
_PLAIN_BATCH = (
    "{size} are copied from pageable memory {times}, and the host waits for each copy: copy asynchronously "
    "from page-locked memory (cudaHostAlloc, cudaHostRegister)",
)
PLAIN_ADVICE: dict[Form, tuple[str, ...]] = {
    "item": _PLAIN_ITEM,
    "size": _PLAIN_ITEM,
    "lookup": _PLAIN_ITEM,
    "read": (
        "{size} are copied to the host {times}, and the host works on them while the GPU is idle: do it in "
        "a kernel",
        "what must stay on the host: gather it and copy once per step, or work on the step before while "
        "this one runs",
    ),
    "elements": ("values on the device are read one by one: copy all of them to the host at once",),
    "arguments": (
        "kernels are launched with arrays of the host, which are copied in and out {times}, and each launch "
        "waits: make them device arrays once before the loop (cuda.to_device) and copy them back after it "
        "(copy_to_host)",
    ),
    "batch": _PLAIN_BATCH,
    "index": _PLAIN_BATCH,
    "made": _PLAIN_MADE,
    "moved": _PLAIN_MADE,
    "small": (
        "copies of {size} go to the device {times}: create the data there",
        "or pack them into one page-locked buffer and copy that once, asynchronously",
    ),
    "device": (
        "the host waits for all work {times}: remove the synchronisation from the loop; to time it, record "
        "two events and read them after the loop",
    ),
    "event": ("the host waits for the event {times}: wait for the event of the step before instead",),
    "stream": (
        "the host waits for the stream {times}: order streams with cudaStreamWaitEvent, which does not block "
        "the host",
    ),
    "sync": (
        "the host waits for the GPU {times} before it goes on: remove the synchronisation, or wait for an "
        "event of the step before",
    ),
}


def title_of(form: Form, times: float | None, *, torch: bool = True) -> str:
    """What it is, in a few words; in PyTorch's where the process has that."""
    titles = TITLES if torch or form not in PLAIN_TITLES else PLAIN_TITLES
    return titles[form].format(often=how_often(times))


def advice_of(form: Form, *, size: str, times: str, torch: bool = True) -> tuple[str, ...]:
    """What to change; sizes and how often in words."""
    advice = ADVICE if torch or form not in PLAIN_ADVICE else PLAIN_ADVICE
    return tuple(text.format(size=size, times=times) for text in advice[form])
