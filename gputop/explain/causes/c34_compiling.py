"""C34: code is compiled in the loop, again and again: torch.compile, Triton, Numba, CuPy."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.code import Files, gaps_in_code
from gputop.explain.chains.formwords import how_often
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask

# (a part of a path of the compiler, how it is named, what keeps it from compiling again); in this order
COMPILERS = (
    (
        ("/torch/_inductor/", "/torch/_dynamo/", "/torch/_functorch/"),
        "torch.compile",
        "keep shapes and Python values fixed, or mark what changes (dynamic=True, "
        "torch._dynamo.mark_dynamic); TORCH_LOGS=recompiles names what changed",
    ),
    (
        ("/triton/compiler/", "/triton/backends/"),
        "Triton",
        "each new value of a tl.constexpr compiles the kernel anew: pass what changes as an ordinary "
        "argument, or round it up to a few values",
    ),
    (
        ("/numba/core/", "/numba/cuda/compiler.py", "/numba/cuda/core/", "/numba/cuda/codegen.py"),
        "Numba",
        "each new type of an argument, and each function made anew, is compiled: define kernels once outside "
        "of the loop, with signatures or one type for each argument",
    ),
    (
        ("/cupy/cuda/compiler", "/cupy/_core/raw", "/cupy/_core/_fusion"),
        "CuPy",
        "make kernels (RawKernel, ElementwiseKernel, fuse) once before the loop, not in it",
    ),
    (("/torch/utils/cpp_extension.py",), "an extension's build", "build it once, before the program starts"),
)


def _compiles(files: Files) -> bool:
    return any(part in file for file in files for parts, _name, _fix in COMPILERS for part in parts)


def _compiling(scene: Scene, free: Mask) -> Mask:
    inside = gaps_in_code(scene, _compiles)[scene.segments.gap]
    starved = scene.own & scene.does(State.QUEUED)
    return free & inside & ~starved


def _by(claim: Claim) -> tuple[str, str]:
    """(which compiler most gaps are in, what to do)."""
    counts = []
    for parts, name, fix in COMPILERS:
        within = gaps_in_code(claim.scene, lambda files, p=parts: any(x in f for f in files for x in p))  # type: ignore[misc]
        counts.append((int(np.count_nonzero(within[claim.gaps])), name, fix))
    _count, name, fix = max(counts, key=lambda one: one[0])
    return name, fix


def _title(claim: Claim) -> str:
    return f"compiles {how_often(claim.times)} ({_by(claim)[0]})"


def _advise(claim: Claim) -> tuple[str, ...]:
    return (f"code is compiled {claim.per_step()} while the GPU waits: {_by(claim)[1]}",)


COMPILING = register(
    Cause(
        "C34",
        "compiles in the loop",
        _compiling,
        _advise,
        culprit="refilled_by",
        titled=_title,
        kind=DiagnosisKind.HOST,
        family="A",
        rank=17,
    )
)
