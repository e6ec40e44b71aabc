"""C49: the thread that launches waits for the DataLoader's workers; the file does not tell what these do.

It is for files of profilers, which record one process. Where all are observed, C08 to C11 say why.
"""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind, Level
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register


def _advise(_claim: Claim) -> tuple[str, ...]:
    return (
        "the workers are slower than the GPU: more of them (num_workers), whole batches (__getitems__), "
        "cheaper or fewer transforms, or transforms on the GPU",
        "gputop record -- python train.py tells what the workers do: compute, read from a disk, wait for "
        "a CPU",
    )


LATE_WORKERS = register(
    Cause(
        "C49",
        "input is not ready: the DataLoader's workers are slower than the GPU",
        advice=_advise,
        level=lambda _claim: Level.STRONG,
        culprit="refilled_by",
        kind=DiagnosisKind.INPUT,
        family="D",
        rank=320,
    )
)
