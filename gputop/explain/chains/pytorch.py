"""Which PyTorch call it was: from the pattern of calls, their Python stack and the line's text to words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from gputop.explain.evidence.apiclass import Role

Form = Literal[
    "item", "size", "lookup", "read", "print", "elements", "scaler", "clip", "save", "arguments", "batch",
    "index", "made", "moved", "small", "device", "event", "stream", "sync",
]  # fmt: skip

MOST_ITEM = 16  # bytes that .item() reads
SIZES = (4, 8)  # what an operation reads that needs to know how many elements come out of it

# who made the call, where a file of PyTorch on the stack tells; in this order
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
_MASK = re.compile(
    r"\b(?:nonzero|argwhere|masked_select|unique|unique_consecutive|repeat_interleave)\(|\bwhere\([^,()]*\)"
    r"|\w\[[^\]]*(?:\bmask|mask\b|[<>]|[=!]=|~)[^\]]*\]"
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
    """What is known of calls that are alike.

    Attributes:
        size: Bytes of the copy that was waited for, as usual; -1 where there was none.
        to_host: Whether that copy went to the host; else to the device.
        role: That of the function that waited.
        files: The files of the Python stack.
        text: The line of source; "" where it is not known.
        same_line: Whether the next work for the GPU comes from the same line.
        count: How many calls there are.
        often: How many of them a step; None without steps.
    """

    size: int = -1
    to_host: bool = False
    role: Role = Role.OTHER
    files: frozenset[str] = frozenset()
    text: str = ""
    same_line: bool = False
    count: int = 0
    often: float | None = None


def form_of_read(pattern: Pattern) -> Form:
    """Which call reads something back: text and stack choose among what the size allows."""
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
    """Which call sent something that the host waited for."""
    if pattern.text and _INDEX.search(pattern.text) and not _MOVE.search(pattern.text):
        return "index"
    return "batch"


def form_of_sync(pattern: Pattern) -> Form:
    """Which wait was asked for, where no copy was; ``sync`` where it is not PyTorch that asked."""
    if "synchronize(" not in pattern.text and not any("/torch/" in file for file in pattern.files):
        return "sync"
    if pattern.role == Role.PROVE_DEVICE:
        return "device"
    return "event" if pattern.role == Role.PROVE_EVENT else "stream"


def by_loader(files: frozenset[str]) -> bool:
    """Whether a stack is within PyTorch's DataLoader."""
    return any(part in file for file in files for part in _LOADER)


def by_start(files: frozenset[str]) -> bool:
    """Whether a stack is within what starts a process, or waits for one to end."""
    return any(part in file for file in files for part in _STARTS)


def by_pytorch(files: frozenset[str]) -> bool:
    """Whether PyTorch's own Python code is on a stack."""
    return any("/torch/" in file for file in files)


def first_use(files: frozenset[str]) -> str:
    """What is done once only in a program's life, as its stack tells: ``imports modules``; "" for nothing."""
    return next((words for part, words in _FIRST_USE if any(part in file for file in files)), "")
