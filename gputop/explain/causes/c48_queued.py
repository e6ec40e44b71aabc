"""C48: the GPU stood still although its next work had been launched: it waited for an event or a rank.

Only a file that holds kernels tells when they began, so only there it is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.evidence.activity import WAIT
from gputop.explain.proofs.kernels import KernelTime
from gputop.format import format_percent
from probes.activities import Table

LATE_NS = 20_000  # within this time a launch reaches an idle GPU
PART = 0.1  # of the time, for what came before or after to be worth a word
COLLECTIVE = re.compile(
    r"nccl|rccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE
)


def _advise(_claim: Claim) -> tuple[str, ...]:
    return (
        "the launching thread is not to blame: look at what the stream waits for (cudaStreamWaitEvent, a "
        "copy or a host function before it, another rank, another GPU)",
    )


def _told(claim: Claim) -> tuple[str, ...]:
    """What ran before and after, and whether the stream had been made to wait for an event."""
    scene, gpu = claim.scene, claim.scene.analysis.gpu
    if not isinstance(gpu, KernelTime):
        return ()
    parts: dict[str, int] = {}
    ns = scene.gap_ns(claim.segments)[claim.gaps]
    waits = scene.evidence.activities.of(WAIT)
    events = np.array(["Event" in text for text in scene.evidence.activities.texts] or [False])
    waits = waits[events[waits["name"]] & (waits["stream"] >= 0)]
    for device in np.unique(scene.gaps.device[claim.gaps]).tolist():
        rows = gpu.of(device)
        mine = scene.gaps.device[claim.gaps] == device
        gaps = claim.gaps[mine]
        following = rows[np.minimum(np.searchsorted(rows["begin"], scene.gaps.end[gaps]), len(rows) - 1)]
        ended = rows[np.argsort(rows["end"], kind="stable")]
        place = np.minimum(np.searchsorted(ended["end"], scene.gaps.begin[gaps]), len(ended) - 1)
        for word, chosen in _words(scene.evidence.activities.texts, ended[place], following, waits):
            parts[word] = parts.get(word, 0) + int(ns[mine][chosen].sum())
    whole = max(int(ns.sum()), 1)
    told = [
        f"{word} {format_percent(100 * part / whole)} %"
        for word, part in sorted(parts.items(), key=lambda one: -one[1])
        if part >= PART * whole
    ]
    return (f"of this time: {', '.join(told)}",) if told else ()


def _words(
    texts: tuple[str, ...], before: Table, after: Table, waits: Table
) -> Iterator[tuple[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    collective = np.array([COLLECTIVE.search(text) is not None for text in texts] or [False])
    yield "behind a collective", collective[before["name"]]
    yield "before a collective", collective[after["name"]] & ~collective[before["name"]]
    yield "within a CUDA graph", (after["graph"] >= 0) & (after["graph"] == before["graph"])
    yield "behind another stream", before["stream"] != after["stream"]
    waited = np.isin(after["stream"], waits["stream"])
    yield "on a stream that was made to wait for an event", waited
    alike = (before["stream"] == after["stream"]) & ~waited & ~collective[before["name"]]
    yield (
        "behind work of the same stream, with nothing between them in the file (another program had the GPU, "
        "or the profiler lost kernels)",
        alike & ((after["graph"] < 0) | (after["graph"] != before["graph"])),
    )


QUEUED = register(
    Cause(
        "C48",
        "queued work did not start",
        advice=_advise,
        culprit="refilled_by",
        told=_told,
        kind=DiagnosisKind.QUEUE,
        family="C",
        rank=310,
    )
)
