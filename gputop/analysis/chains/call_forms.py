"""The form of a call, by pattern, stack and source text, and its title and advice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from gputop.analysis.evidence.api_classes import Role

Form = Literal[
    "item", "size", "lookup", "read", "print", "elements", "scaler", "clip", "save", "arguments", "batch",
    "index", "made", "moved", "small", "device", "event", "stream", "sync",
]  # fmt: skip

MOST_ITEM = 16  # bytes that .item() reads
SIZES = (4, 8)  # what an operation reads that needs to know how many elements come out of it

# by a file of PyTorch on the stack, in this order
_BY_FILE: tuple[tuple[str, Form], ...] = (
    ("/torch/_tensor_str.py", "print"),
    ("/torch/amp/grad_scaler.py", "scaler"),
    ("/torch/cuda/amp/grad_scaler.py", "scaler"),
    ("/torch/nn/utils/clip_grad.py", "clip"),
    ("/torch/serialization.py", "save"),
    ("/numba/cuda/args.py", "arguments"),
)
_STARTS = ("/multiprocessing/popen_", "/subprocess.py")
_LOADER = ("/torch/utils/data/",)
_WITHIN = r"(?:[^\[\]]|\[[^\[\]]*\])*"  # brackets may hold brackets: x[x[:, 0] > 0]
_MASK = re.compile(
    r"\b(?:nonzero|argwhere|masked_select|unique|unique_consecutive|repeat_interleave)\(|\bwhere\([^,()]*\)"
    rf"|\w\[{_WITHIN}(?:\bmask|mask\b|[<>]|[=!]=|~){_WITHIN}\]"
)
_ITEM = re.compile(r"\.item\(|\b(?:float|int|bool)\(|^\s*(?:if|while|elif|assert)\b|\bprint\(|\bf['\"]")
_READ = re.compile(r"\.(?:cpu|numpy|tolist)\(|\.to\(\s*(?:device\s*=\s*)?(?:torch\.device\(\s*)?['\"]cpu")
_MOVE = re.compile(r"\.(?:to|cuda|copy_)\(|\bdevice\s*=|\b(?:tensor|as_tensor)\(")
_INDEX = re.compile(r"\w\[[^\]:]+\]|\b(?:index_select|index_put_?|gather|take)\(")
_LOOKUP = re.compile(r"\w\[[\w.]*[a-z][\w.]*\]")  # by a name: x[i], not x[0]
_FIRST_USE: tuple[tuple[str, str], ...] = (
    ("<frozen importlib", "imports modules"),
    ("/torch/_inductor/", "compiles (torch.compile)"),
    ("/torch/_dynamo/", "compiles (torch.compile)"),
    ("/triton/", "compiles a Triton kernel"),
    ("/torch/utils/cpp_extension.py", "compiles an extension"),
    ("/multiprocessing/", "starts worker processes"),
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A group of similar calls."""

    size: int = -1  # usual bytes of the copy for which they wait; -1 where there is none
    to_host: bool = False  # True if that copy goes to the host, else to the device
    role: Role = Role.OTHER  # of the function that waits
    files: frozenset[str] = frozenset()  # the files of the Python stack
    text: str = ""  # the source line; "" where unknown
    same_line: bool = False  # True if the next GPU work comes from the same line
    count: int = 0  # number of calls
    often: float | None = None  # calls per step; None without steps


def form_of_read(pattern: Pattern) -> Form:
    """Return the form of a read-back: by text and stack, among those that the size allows."""
    for part, form in _BY_FILE:
        if any(part in file for file in pattern.files):
            return form
    if not 0 <= pattern.size <= MOST_ITEM:
        return "read"
    if _ITEM.search(pattern.text):
        return "item"
    if pattern.size in SIZES and (_MASK.search(pattern.text) or (pattern.same_line and not pattern.text)):
        return "size"
    if pattern.size in SIZES and _LOOKUP.search(pattern.text) and not _READ.search(pattern.text):
        return "lookup"
    return "read" if _READ.search(pattern.text) else "item"


def form_of_send(pattern: Pattern) -> Form:
    """Return the form of a copy to the device for which the host waited."""
    if pattern.text and _INDEX.search(pattern.text) and not _MOVE.search(pattern.text):
        return "index"
    return "batch"


def form_of_sync(pattern: Pattern) -> Form:
    """Return the form of a wait without a copy; ``sync`` where PyTorch did not call it."""
    if "synchronize(" not in pattern.text and not any("/torch/" in file for file in pattern.files):
        return "sync"
    if pattern.role == Role.PROVE_DEVICE:
        return "device"
    return "event" if pattern.role == Role.PROVE_EVENT else "stream"


def by_loader(files: frozenset[str]) -> bool:
    """True if a stack is within PyTorch's DataLoader."""
    return any(part in file for file in files for part in _LOADER)


def by_start(files: frozenset[str]) -> bool:
    """True if a stack starts a process, or waits for the end of one."""
    return any(part in file for file in files for part in _STARTS)


def first_use(files: frozenset[str]) -> str:
    """Return the start-up work that a stack shows: ``imports modules``; "" for none."""
    return next((words for part, words in _FIRST_USE if any(part in file for file in files)), "")


# Titles and advice for each form of call, in PyTorch's terms and in those of CUDA.


def how_often(times: float | None) -> str:
    """Return ``every step``, ``every 10 steps``; ``in the loop`` without steps."""
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

# of a program without PyTorch
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
    """Return the title of a form; in PyTorch's terms where the process uses it."""
    titles = TITLES if torch or form not in PLAIN_TITLES else PLAIN_TITLES
    return titles[form].format(often=how_often(times))


def advice_of(form: Form, *, size: str, times: str, torch: bool = True) -> tuple[str, ...]:
    """Return the advice for a form; ``size`` and ``times`` as text."""
    advice = ADVICE if torch or form not in PLAIN_ADVICE else PLAIN_ADVICE
    return tuple(text.format(size=size, times=times) for text in advice[form])
