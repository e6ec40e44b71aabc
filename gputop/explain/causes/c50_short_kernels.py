"""C50: kernels that were queued in time follow each other with microseconds between them: the GPU's own time.

Only a file that holds kernels tells of it.
"""

from __future__ import annotations

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register


def _advise(claim: Claim) -> tuple[str, ...]:
    fused = "fused kernels (torch.compile)" if claim.torch else "fused kernels"
    return (
        "the host is not to blame: each kernel costs the GPU some microseconds before it runs. Fewer and "
        f"larger ones: {fused}, a larger batch, CUDA graphs, which shorten these gaps",
    )


BETWEEN_KERNELS = register(
    Cause(
        "C50",
        "the GPU's own time between queued kernels",
        advice=_advise,
        culprit="refilled_by",
        kind=DiagnosisKind.LAUNCH,
        family="H",
        rank=330,
    )
)
