"""The class of a file that holds its kernels: what takes most of the GPUs' time, by the rows alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gputop.explain.answer.report import Account, Diagnosis, DiagnosisKind, Finding, Level
from gputop.explain.causes import CATALOGUE
from gputop.explain.chains.scene import Scene
from gputop.explain.chains.traced_words import in_words
from gputop.explain.evidence.ranges import length
from gputop.explain.findings.busy import BusyTime, busy_time
from gputop.explain.findings.findings import Outcome
from gputop.explain.proofs.kernels import KernelTime
from gputop.format import format_ns, format_percent

LEAST = 0.1  # of the time, for an idle GPU's class
MOVES = 1.5  # times as long as all others kernels must run that go over each element once, to name the class
TOLD = 0.02  # of the kernels' time, for a kind to be told


def class_of_traced(
    scene: Scene,
    gpu: KernelTime,
    outcome: Outcome,
    findings: Sequence[Finding],
    kinds: Sequence[DiagnosisKind | None],
    accounts: Sequence[Account],
    titles: dict[DiagnosisKind, str],
) -> Diagnosis | None:
    """The class; of no kind where the file does not tell why the GPUs were idle, None where they ran nothing.

    Args:
        scene: Everything.
        gpu: When the GPUs worked.
        outcome: What the gaps gave.
        findings: What is told.
        kinds: The class of each.
        accounts: Of the GPUs.
        titles: Of the classes.
    """
    span = sum(one.span_ns for one in accounts)
    if not span:
        return None
    busy = busy_time(gpu, scene.evidence.activities.texts)
    taken: dict[DiagnosisKind | None, int] = {}
    for row, cause in enumerate(CATALOGUE):
        taken[cause.kind] = taken.get(cause.kind, 0) + int(scene.ns[outcome.cause == row].sum())
    taken[None] = taken.get(None, 0) + sum(length(*one) for one in gpu.unlinked.values())
    taken[DiagnosisKind.STARTUP] = sum(length(*one) for one in gpu.first_use.values())
    for one, name in ((DiagnosisKind.COMMUNICATION, "communication"), (DiagnosisKind.COPY, "copies")):
        taken[one] = taken.get(one, 0) + busy.alone[name]
    kind = max(taken, key=lambda name: taken[name])
    working = busy.busy - sum(busy.alone.values())
    if (
        taken[kind] < LEAST * span
        or taken[kind] < working * LEAST
        or _barely(taken[kind], working, busy, span)
    ):
        return _of_busy(busy, span, titles)
    if kind is None:
        return _untold(taken[None], span)
    share = f"{format_percent(100 * taken[kind] / span)} % of the time goes to this"
    lead = next((place for place, one in enumerate(kinds) if one is kind), None)
    if lead is not None:
        return Diagnosis(kind, titles[kind], findings[lead].level, (share,), (), lead)
    said = _said(scene, gpu, outcome, kind, busy, span)
    return Diagnosis(kind, titles[kind], Level.STRONG, (said or share,), _ADVICE.get(kind, ()))


def _barely(taken: int, working: int, busy: BusyTime, span: int) -> bool:
    """Whether a GPU that works nearly all the time loses so little that its work is the answer."""
    return busy.busy > 0.9 * span and taken < working


def _said(
    scene: Scene, gpu: KernelTime, outcome: Outcome, kind: DiagnosisKind, busy: BusyTime, span: int
) -> str:
    """What a class without a finding is about."""
    if kind is DiagnosisKind.STARTUP:
        calls = _loading(scene, gpu)
        ns = sum(length(*one) for one in gpu.first_use.values())
        return f"loading code and taking memory for the first time took {format_ns(ns)}{calls}"
    if kind is DiagnosisKind.COMMUNICATION and busy.alone["communication"] > LEAST * span:
        return _alone(busy, "communication", "collectives", span)
    if kind is DiagnosisKind.COPY and busy.alone["copies"] > LEAST * span:
        return _alone(busy, "copies", "copies and fills", span)
    return _largest(scene, outcome, kind)


def _alone(busy: BusyTime, name: str, words: str, span: int) -> str:
    share = format_percent(100 * busy.alone[name] / span)
    return f"nothing but {words} ran for {share} % of the time"


def _loading(scene: Scene, gpu: KernelTime) -> str:
    """The calls that took most of the first uses."""
    calls = scene.evidence.calls
    first = [one for one in gpu.first_use.values() if len(one[0])]
    found: dict[str, int] = {}
    for begin, end in first:
        inside = np.flatnonzero((calls["end"] > begin[0]) & (calls["begin"] < end[-1]))
        inside = inside[calls["end"][inside] - calls["begin"][inside] >= 1_000_000]
        for row in inside.tolist():
            low, high = np.maximum(begin, calls["begin"][row]), np.minimum(end, calls["end"][row])
            name = scene.evidence.apis.name(int(calls["op"][row]))
            found[name] = found.get(name, 0) + int(np.maximum(high - low, 0).sum())
    most = sorted(found.items(), key=lambda one: -one[1])[:3]
    told = ", ".join(f"{name} {format_ns(ns)}" for name, ns in most if ns)
    return f" ({told})" if told else ""


def _largest(scene: Scene, outcome: Outcome, kind: DiagnosisKind) -> str:
    """The cause of this class that takes most, with where the thread was."""
    best = max(
        (row for row, cause in enumerate(CATALOGUE) if cause.kind is kind),
        key=lambda row: int(scene.ns[outcome.cause == row].sum()),
        default=-1,
    )
    if best < 0:
        return ""
    mine = outcome.cause == best
    ns, gaps = int(scene.ns[mine].sum()), len(np.unique(scene.segments.gap[mine]))
    where = in_words(scene, np.flatnonzero(mine))
    title = CATALOGUE[best].title.removesuffix(" every step")
    return f"{title} for {format_ns(ns)} in {gaps} gap{'s' * (gaps != 1)}{f', {where}' if where else ''}"


def _untold(ns: int, span: int) -> Diagnosis:
    share = format_percent(100 * ns / span)
    said = (
        f"for {format_ns(ns)} ({share} %) why is not in the file: it holds no launches of what ended these "
        "gaps (profile the calls with the kernels: ProfilerActivity.CPU, nsys profile --trace cuda)"
    )
    return Diagnosis(None, "why is not in the file", Level.PROVED, (said,), ())


def _of_busy(busy: BusyTime, span: int, titles: dict[DiagnosisKind, str]) -> Diagnosis:
    """Compute or memory, by what kinds of kernels run longest."""
    share = f"a kernel or a copy ran for {format_percent(100 * busy.busy / span)} % of the time"
    kernels = {name: busy.ran[name] for name in ("compute", "memory", "other")}
    for name, kind, words in (
        ("communication", DiagnosisKind.COMMUNICATION, "collectives"),
        ("copies", DiagnosisKind.COPY, "copies and fills"),
    ):
        if busy.alone[name] > 0.5 * busy.busy:
            alone = _alone(busy, name, words, span)
            return Diagnosis(kind, titles[kind], Level.STRONG, (alone, share), _ADVICE[kind])
    whole = max(sum(kernels.values()), 1)
    kind = (
        DiagnosisKind.COMPUTE
        if kernels["memory"] < MOVES * (kernels["compute"] + kernels["other"])
        else DiagnosisKind.MEMORY
    )
    said = [
        f"{format_percent(100 * ns / whole)} % {words}"
        for words, ns in (
            ("matrix products, convolutions and attention", kernels["compute"]),
            ("kernels that go over each element once", kernels["memory"]),
            ("others, whose names tell neither", kernels["other"]),
        )
        if ns > TOLD * whole
    ]
    told = f"a kernel or a copy ran for {format_percent(100 * busy.busy / span)} % of the time"
    if said:
        told += f"; of the kernels' time are {', '.join(said)}, by their names"
    if busy.ran["communication"] > LEAST * sum(busy.ran.values()):
        part = format_percent(100 * busy.ran["communication"] / sum(busy.ran.values()))
        told += f"; beside them {part} % of all work is collectives"
    return Diagnosis(kind, titles[kind], Level.HINT, (told,), _ADVICE[kind])


_ADVICE: dict[DiagnosisKind, tuple[str, ...]] = {
    DiagnosisKind.COMPUTE: (
        "the GPU itself is the limit: lower precision (TF32, bfloat16), torch.compile, fused attention, less "
        "work",
    ),
    DiagnosisKind.MEMORY: (
        "memory bandwidth is the limit: fuse elementwise chains (torch.compile), channels_last for "
        "convolutions, autocast to halve the bytes",
    ),
    DiagnosisKind.COMMUNICATION: (
        "overlap collectives with backward (larger or fewer buckets), shard less, or look for a rank that is "
        "late: gputop merge of all ranks' files",
    ),
    DiagnosisKind.COPY: (
        "copy while kernels run: a stream of its own and pinned memory (non_blocking=True), or keep on the "
        "GPU what is copied again and again",
    ),
    DiagnosisKind.STARTUP: (
        "profile later steps (torch.profiler.schedule with wait and warmup) to see the loop itself",
    ),
}
