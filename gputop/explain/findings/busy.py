"""What a GPU is busy with, by the names of its kernels: of files that hold them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gputop.explain.causes.c48_queued import COLLECTIVE
from gputop.explain.evidence.activity import COPY, FILL, KERNEL
from gputop.explain.evidence.ranges import Ints, intersect, length, subtract, union
from gputop.explain.proofs.kernels import KernelTime
from probes.activities import Table

# what multiplies matrices is bound by arithmetic as a rule, what goes over each element once by the memory
_COMPUTE: Final = re.compile(
    r"gemm|gemv|matmul|_mm_|\bmm\b|conv|wgrad|dgrad|fprop|xmma|cutlass|cudnn|winograd|wino|implicit|attention|attn|flash"
    r"|fmha|mha_|Cijk_|sgemm|hgemm|MLP|moe|gather_gemm|nchwToNhwc.*mma|triton_tem|miopen|asm_|igemm|trsm|fft",
    re.IGNORECASE,
)
_MEMORY: Final = re.compile(
    r"elementwise|vectorized|copy|cat_?array|fill|transpose|permute|reduce|softmax|norm|embedding|gather|scatter|index"
    r"|multi_tensor|adam|foreach|bias|relu|gelu|silu|dropout|pool|upsample|scan|sort|triton_(poi|red|per)_|act_and_mul"
    r"|rotary|rope|cross_entropy|nll|kthvalue|unrolled|memcpy|memset|nchw|nhwc|im2col|quant|bn_(fw|bw)|argmax|topk",
    re.IGNORECASE,
)
KINDS: Final = ("communication", "copies", "compute", "memory", "other")


@dataclass(frozen=True, slots=True)
class BusyTime:
    """One GPU's or several GPUs' busy time, ns.

    Attributes:
        alone: In which nothing but this ran: ``communication`` and ``copies``.
        ran: Of kernels by kind, side by side ones counted each.
    """

    busy: int
    alone: dict[str, int]
    ran: dict[str, int]


def busy_time(gpu: KernelTime, texts: Sequence[str]) -> BusyTime:
    """Of all GPUs of a file."""
    kinds = _kinds_of(texts)
    whats = {word: texts.index(word) for word in (KERNEL, COPY, FILL) if word in texts}
    alone, ran, busy = dict.fromkeys(KINDS[:2], 0), dict.fromkeys(KINDS, 0), 0
    for span in gpu.spans:
        rows, window = gpu.of(span.device), (np.array([span.begin]), np.array([span.end]))
        moves = np.isin(rows["what"], [whats[word] for word in (COPY, FILL) if word in whats])
        kind = np.where(moves, KINDS.index("copies"), kinds[rows["name"]])
        spent = np.bincount(kind, weights=rows["end"] - rows["begin"], minlength=len(KINDS))
        for name, ns in zip(KINDS, spent.tolist(), strict=True):
            ran[name] += int(ns)
        busy += length(*intersect(_cover(rows), window))
        for number, name in enumerate(KINDS[:2]):
            only = subtract(_cover(rows[kind == number]), _cover(rows[kind != number]))
            alone[name] += length(*intersect(only, window))
    return BusyTime(busy, alone, ran)


def _kinds_of(texts: Sequence[str]) -> Ints:
    kinds = [
        0
        if COLLECTIVE.search(text)
        else 2
        if _COMPUTE.search(text) and not _only_moves(text)
        else 3
        if _MEMORY.search(text)
        else 4
        for text in texts
    ]
    return np.array(kinds or [0], np.int64)


def _only_moves(text: str) -> bool:
    """``cudnn::bn_fw_tr``, ``cudnn::ops::nchwToNhwcKernel``: of a library that computes, and does not."""
    return (
        re.search(
            r"elementwise|bn_(fw|bw)|nchwTo|nhwcTo|pooling|softmax|norm|reduce|copy|transpose", text, re.I
        )
        is not None
    )


def _cover(rows: Table) -> tuple[Ints, Ints]:
    return union(rows["begin"].astype(np.int64), rows["end"].astype(np.int64))
