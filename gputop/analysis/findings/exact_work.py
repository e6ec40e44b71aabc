"""GPUs by their own clock: kernels with their queue delay, and work that ran alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gputop.analysis.answer.kernel_report import ExactGpu, ExactKernel, ExactReport, longest_first
from gputop.analysis.causes.launch_causes import COLLECTIVE
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.evidence.api_classes import COPY, FILL, GRAPH, KERNEL
from gputop.analysis.evidence.call_context import enqueued_work, sums_by_line
from gputop.analysis.evidence.columns import Ints, Mask, covered, intersect, length, subtract, union
from gputop.analysis.proofs.gaps import KernelTime
from gputop.engine.calls.stack_table import Line
from probes.activities import Table


def exact_work(scene: AttributionContext, pids: frozenset[int] | None = None) -> ExactReport:
    """Return what ran in the stretch, of ``pids`` or of all; empty where no kernels are known."""
    gpu, facts = scene.analysis.gpu, scene.evidence.facts.processes
    if not isinstance(gpu, KernelTime):
        return ExactReport()
    errors = [one["inside_error_ns"] for one in facts.values() if "inside_error_ns" in one]
    busy = tuple(_of_gpu(scene, gpu, span.device) for span in gpu.spans)
    kernels = (one for one in _kernels(scene, gpu) if pids is None or one.pid in pids)
    return ExactReport(busy, longest_first(kernels), max(errors, default=None))


def _of_gpu(scene: AttributionContext, gpu: KernelTime, device: int) -> ExactGpu:
    one = _busy(gpu, scene.evidence.activities.texts, device)
    # time in which something ran, not how much ran side by side
    return ExactGpu(
        gpu.devices.labels[device],
        one.busy,
        one.some["copies"],
        one.alone["copies"],
        one.some["communication"],
        one.alone["communication"],
    )


def _kernels(scene: AttributionContext, gpu: KernelTime) -> Iterator[ExactKernel]:
    """Yield the kernels by process and name; of graphs only the whole is known."""
    evidence, (low, high) = scene.evidence, gpu.stretch
    rows, call = enqueued_work(evidence, KERNEL, GRAPH)
    inside = (rows["end"] > low) & (rows["end"] <= high)
    rows, call = rows[inside], call[inside]
    enqueued = np.append(evidence.calls["begin"], 0)[call]  # of -1: there may be no call at all
    begin = rows["begin"].astype(np.int64)
    known = call >= 0
    delay = np.where(known, np.maximum(begin - enqueued, 0), 0)
    ahead = known & _busy_at(gpu, rows, enqueued)
    pairs, which = np.unique(rows[["pid", "name"]], return_inverse=True)
    order = np.argsort(which, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(which))[:-1]) if len(order) else ()
    for (pid, name), mine in zip(pairs.tolist(), parts, strict=True):
        duration = (rows["end"] - rows["begin"])[mine]
        yield ExactKernel(
            pid,
            evidence.activities.texts[name],
            len(mine),
            int(duration.sum()),
            int(duration.max()),
            int(known[mine].sum()),
            int(delay[mine].sum()),
            int(delay[mine].max()),
            int(ahead[mine].sum()),
            _lines(scene, call[mine], duration),
        )


def _busy_at(gpu: KernelTime, rows: Table, moments: Ints) -> Mask:
    """Return which rows' GPUs were at work at their moments."""
    found: Mask = np.zeros(len(rows), np.bool_)
    for span in gpu.spans:
        mine = np.flatnonzero(rows["device"] == gpu.devices.index[span.device])
        found[mine] = covered(gpu.pending(span.device), moments[mine], moments[mine] + 1) > 0
    return found


def _lines(scene: AttributionContext, call: Ints, duration: Ints) -> dict[Line, int]:
    known = call >= 0
    return sums_by_line(scene.evidence, scene.evidence.calls["stack"][call[known]], duration[known])


# The work of a GPU, by the names of its kernels.

# matrix products are bound by arithmetic as a rule, kernels that go over each element once by the memory
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
# of a library that computes, and do not: ``cudnn::bn_fw_tr``, ``cudnn::ops::nchwToNhwcKernel``
_MOVES: Final = re.compile(
    r"elementwise|bn_(fw|bw)|nchwTo|nhwcTo|pooling|softmax|norm|reduce|copy|transpose", re.IGNORECASE
)
KINDS: Final = ("communication", "copies", "compute", "memory", "other")


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Busy time of one or several GPUs, ns."""

    busy: int
    some: dict[str, int]  # with some ``communication`` or ``copies``
    alone: dict[str, int]  # with nothing but these
    ran: dict[str, int]  # of kernels by kind, side by side ones counted each


def busy_time(gpu: KernelTime, texts: Sequence[str]) -> BusyTime:
    """Return the busy time of all GPUs of a file."""
    parts = [_busy(gpu, texts, span.device) for span in gpu.spans]
    some, alone = (
        {name: sum(getattr(one, which)[name] for one in parts) for name in KINDS[:2]}
        for which in ("some", "alone")
    )
    ran = {name: sum(one.ran[name] for one in parts) for name in KINDS}
    return BusyTime(sum(one.busy for one in parts), some, alone, ran)


def _busy(gpu: KernelTime, texts: Sequence[str], device: int) -> BusyTime:
    span = next(one for one in gpu.spans if one.device == device)
    rows, window = gpu.of(device), (np.array([span.begin]), np.array([span.end]))
    moves = [place for place, text in enumerate(texts) if text in (COPY, FILL)]
    kinds = np.array([KINDS.index(_kind_of(text)) for text in texts] or [0], np.int64)
    kind = np.where(np.isin(rows["what"], moves), KINDS.index("copies"), kinds[rows["name"]])
    spent = np.bincount(kind, weights=rows["end"] - rows["begin"], minlength=len(KINDS))
    some, alone = {}, {}
    for number, name in enumerate(KINDS[:2]):
        mine = _cover(rows[kind == number])
        some[name] = length(*intersect(mine, window))
        alone[name] = length(*intersect(subtract(mine, _cover(rows[kind != number])), window))
    ran = {name: int(ns) for name, ns in zip(KINDS, spent.tolist(), strict=True)}
    return BusyTime(length(*intersect(_cover(rows), window)), some, alone, ran)


def _kind_of(text: str) -> str:
    if COLLECTIVE.search(text):
        return "communication"
    if _COMPUTE.search(text) and not _MOVES.search(text):
        return "compute"
    return "memory" if _MEMORY.search(text) else "other"


def _cover(rows: Table) -> tuple[Ints, Ints]:
    return union(rows["begin"].astype(np.int64), rows["end"].astype(np.int64))
