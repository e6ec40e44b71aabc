"""C08 to C12 and C49: the input is late, by the loader's workers or on the submitting thread."""

from __future__ import annotations

import re

import numpy as np

from gputop.analysis.answer.report import DiagnosisKind, Level
from gputop.analysis.causes.cause import Cause, CauseMatch
from gputop.analysis.causes.drains import read_between
from gputop.analysis.causes.launch_sites import long_work, own_work
from gputop.analysis.chains.attribution_context import BIG_COPY, SCALAR_BYTES, AttributionContext
from gputop.analysis.chains.call_forms import by_loader
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.roles import loader_helpers, most_at_a_time, of_loader
from gputop.analysis.chains.thread_places import sampled
from gputop.analysis.evidence.blocking import Wait
from gputop.analysis.evidence.columns import Ints, Mask, covered, intersect, union
from gputop.engine.calls.stack_table import Line
from gputop.format import format_bytes


def behind_workers(scene: AttributionContext) -> Mask:
    """Return the leaves that wait for a CPU on which mostly other workers of the same loader run.

    These compute the batches after this one, and fewer workers would not make them less: such a wait is the
    loader's own computing, more than the CPUs can do.
    """
    segments, on_cpu = scene.segments, scene.evidence.on_cpu
    behind = np.zeros(scene.size, np.bool_)
    queued = np.flatnonzero(of_loader(scene) & scene.does(State.QUEUED) & (segments.slice >= 0))
    cpu = scene.evidence.slices["queue_cpu"][segments.slice[queued]]
    for number in np.unique(cpu).tolist():
        rows = queued[cpu == number]
        here = on_cpu[(on_cpu["cpu"] == number) & np.isin(on_cpu["pid"], scene.helpers())]
        covered_ns = covered(union(here["begin"], here["end"]), segments.begin[rows], segments.end[rows])
        behind[rows] = 2 * covered_ns > scene.ns[rows]
    return behind


def workers_of(claim: CauseMatch) -> int:
    """Return how many workers at a time had a part in it; beside them a thread of the trainer counts as none.

    Workers that are started anew for every epoch are others each time.
    """
    scene = claim.scene
    rows = scene.segments.thread[claim.segments]
    pids = np.unique(scene.evidence.threads.pid[rows])
    others = np.setdiff1d(pids, [claim.pid])
    return most_at_a_time(scene, others) if len(others) else len(np.unique(rows))


# C08: the workers of the loader compute for longer than the GPU.

LARGE = 0.2  # part of the time that workers wait for each other (docs/causes/C08.md)


def _cpu_of_workers(claim: CauseMatch) -> int:
    """Return how long workers had the CPU that the submitting thread waited for, ns.

    It counts where the GPU had or may have had nothing to do: a loader that computes less saves that, too.
    """
    scene = claim.scene
    slices, on_cpu = scene.evidence.slices, scene.evidence.on_cpu
    rows = np.flatnonzero(np.isin(slices["row"], scene.gaps.thread[claim.gaps]))
    rows = rows[slices["end"][rows] > slices["queued"][rows]]
    late = scene.analysis.gpu.delays.intervals
    idle = union(np.append(scene.gaps.begin, late[0]), np.append(scene.gaps.end, late[1]))
    total = 0
    for number in np.unique(slices["queue_cpu"][rows]).tolist():
        mine = rows[slices["queue_cpu"][rows] == number]
        waits = union(slices["queued"][mine], slices["end"][mine])
        here = on_cpu[(on_cpu["cpu"] == number) & np.isin(on_cpu["pid"], scene.helpers())]
        begin, end = intersect(waits, idle)
        total += int(covered(union(here["begin"], here["end"]), begin, end).sum())
    return total


def _advise_computing(claim: CauseMatch) -> tuple[str, ...]:
    workers, cpus = workers_of(claim), claim.scene.cpus
    advice = [
        "the workers compute for longer than the GPU: fetch whole batches (__getitems__), vectorise, or "
        "move transforms to the GPU"
    ]
    queued = claim.segments & (claim.scene.segments.state == State.QUEUED)
    waited = int(claim.scene.ns[queued].sum())
    if waited > LARGE * claim.ns:
        several = f"{workers} workers" if workers > 1 else "workers"  # the others had no part in it
        advice.append(
            f"{several} share {cpus} CPUs and wait for each other for "
            f"{100 * waited / claim.ns:.0f} % of this time: more of them will not help"
        )
    elif cpus > workers + 1:
        advice.append(f"{cpus - 1 - workers} of {cpus} CPUs can take more workers: num_workers={cpus - 1}")
    return tuple(advice)


COMPUTING = Cause(
    "C08",
    "DataLoader is CPU-bound",
    lambda scene, free: (
        free & of_loader(scene) & (scene.does(State.RUN, State.BLOCKED) | behind_workers(scene))
    ),
    _advise_computing,
    more=_cpu_of_workers,
    culprit="end",
    crowded=True,
    kind=DiagnosisKind.INPUT,
    family="D",
    rank=130,
)

# C09: the workers of the loader wait for a CPU.


def _advise_starved(claim: CauseMatch) -> tuple[str, ...]:
    workers, cpus = workers_of(claim), claim.scene.cpus
    best = max(cpus - 1, 1)
    advice = []
    if workers > best:
        advice.append(f"{workers} workers share {cpus} CPUs with the trainer: num_workers={best}")
    advice.append("keep others off their CPUs (taskset, nice), and torch.set_num_threads(1) in the workers")
    return tuple(advice)


STARVED = Cause(
    "C09",
    "DataLoader is starved of CPU",
    lambda scene, free: free & of_loader(scene) & scene.does(State.QUEUED) & ~behind_workers(scene),
    _advise_starved,
    culprit="end",
    kind=DiagnosisKind.INPUT,
    family="D",
    rank=120,
)

# C10: the workers of the loader wait for the disk.

ON_DISK = Cause(
    "C10",
    "DataLoader waits for the disk",
    lambda scene, free: free & of_loader(scene) & scene.waits(Wait.DISK, Wait.READ),
    lambda _claim: (
        "the workers wait for the disk: keep the data in memory, read larger pieces, or prefetch more "
        "(prefetch_factor, more workers: they wait, they do not compute)",
    ),
    culprit="end",
    kind=DiagnosisKind.INPUT,
    family="D",
    rank=100,
)

# C11: the workers of the loader stall on page faults.


def _fault_level(claim: CauseMatch) -> Level:
    """Return proved for sleeps; the part of the CPU time that faults took is an estimate."""
    asleep = int(claim.scene.ns[claim.segments & claim.scene.does(State.BLOCKED)].sum())
    return Level.PROVED if asleep >= 0.9 * claim.ns else Level.STRONG


FAULTS = Cause(
    "C11",
    "DataLoader stalls on page faults",
    lambda scene, free: free & of_loader(scene) & (scene.waits(Wait.FAULT, Wait.MEMORY) | scene.faulting()),
    lambda _claim: (
        "the workers touch fresh memory for each batch: reuse its buffers, persistent_workers=True, or "
        "transparent huge pages; files that are mapped: read them once before, or keep them in memory",
    ),
    _fault_level,
    culprit="end",
    kind=DiagnosisKind.INPUT,
    family="D",
    rank=110,
)

# C12: the submitting thread prepares the input itself.

FEW_SAMPLES = 5  # fewer samples may all have missed the loader
LOADER_ALONE = "_SingleProcessDataLoaderIter"  # PyTorch's loader with num_workers=0, as its profiler names it
FETCHES_BATCH = "__getitems__"  # of a dataset: a batch by its indices
# code that makes inputs, by the names that PyTorch's protocol gives it; of Python 3.10 without the class
DATASET = re.compile(r"(?:^|dataset\w*\.)__getitems?__$|(?:^|[._])collate(?:_fn)?$", re.IGNORECASE)


def _prepared(scene: AttributionContext, free: Mask) -> Mask:
    facts, gap = scene.gap_facts, scene.segments.gap
    # a round trip (read, host work, send) is C02, however large the copy back; but a batch is not made of a
    # scalar: after a loss.item() the time goes into the next input
    round_trip = read_between(scene)[gap] > SCALAR_BYTES
    prepares = own_work(scene) | (scene.unrecorded & scene.within(LOADER_ALONE))
    # a small copy is an input where making it takes long: the tokens of a text, an environment's observation
    input_ = (facts.sent_bytes >= BIG_COPY) | ((facts.sent_bytes > SCALAR_BYTES) & long_work(scene))
    # the host may work on the data that was read back: without a loader nothing shows that it is an input
    alone = read_between(scene) < 0
    for pid in np.unique(scene.pid[prepares & input_[gap]]).tolist():
        if _in_loader(scene, np.flatnonzero(prepares & input_[gap] & (scene.pid == pid))):
            alone |= scene.evidence.threads.pid[scene.gaps.thread] == pid
    alone = alone[gap] | (scene.unrecorded & scene.within(LOADER_ALONE))
    return free & prepares & input_[gap] & alone & ~round_trip


def _in_loader(scene: AttributionContext, rows: Ints) -> bool:
    """Return True if most samples of these segments are within PyTorch's DataLoader, or a dataset."""

    def loads(frame: Line) -> bool:
        return by_loader(frozenset((frame.file,))) or DATASET.search(frame.function) is not None

    frames, met = scene.evidence.facts.stacks.frames, sampled(scene, rows)
    inside = sum(count for stack, count in met if any(map(loads, frames(stack))))
    return 2 * inside > sum(count for _stack, count in met) > 0


def _advise_prepared(claim: CauseMatch) -> tuple[str, ...]:
    scene = claim.scene
    cpus = scene.cpus
    if scene.analysis.traced is not None:  # the first copy may be of anything
        return ("prepare the next input in another process meanwhile: DataLoader with num_workers=1 or more",)
    on = f" on {cpus} CPUs" if cpus else ""
    workers = f"num_workers={max(cpus - 1, 1)}{on}, persistent_workers=True"
    prepares = f"the submitting thread prepares each input of {format_bytes(claim.sent_bytes)} itself"
    whole = f"{prepares}, sample by sample: fetch whole batches"
    apart = "prepare the next one in another process"
    if not claim.torch:
        if _by_sample(claim):
            return whole, f"or {apart}"
        return (f"{prepares}, and the GPU waits: {apart}",)
    helpers = most_at_a_time(scene, loader_helpers(scene))
    if not helpers and not _in_pytorch_loader(claim):
        return (
            f"{prepares}, and the GPU waits: let a process of its own prepare the next one meanwhile "
            f"(DataLoader with {workers})",
        )
    if not helpers and _by_batch(claim):
        return (f"{prepares}, and the GPU waits: prepare the next batch in a worker process ({workers})",)
    first = f"{whole} (__getitems__, or index the tensor with the batch's indices)"
    if helpers > 0:
        return first, f"{helpers} workers hand over many small objects: let them return one tensor a batch"
    return first, f"or give the loader a process of its own: {workers}"


def _by_sample(claim: CauseMatch) -> bool:
    """Return True if the dataset is read sample by sample."""
    frames = _frames(claim)
    return any(frame.function.endswith("__getitem__") for frame in frames) and not _by_batch(claim)


def _by_batch(claim: CauseMatch) -> bool:
    """Return True if the dataset fetches whole batches; the method of PyTorch's ``Subset`` may only loop."""
    fetches = (frame for frame in _frames(claim) if frame.function.endswith(FETCHES_BATCH))
    return any(not by_loader(frozenset((frame.file,))) for frame in fetches)


def _frames(claim: CauseMatch) -> list[Line]:
    frames, met = (
        claim.scene.evidence.facts.stacks.frames,
        sampled(claim.scene, np.flatnonzero(claim.segments)),
    )
    return [frame for stack, _count in met for frame in frames(stack)]


def _in_pytorch_loader(claim: CauseMatch) -> bool:
    """Return True if PyTorch's DataLoader is on a stack of this work, or too few stacks are known."""
    stacks = claim.scene.evidence.facts.stacks
    met = sampled(claim.scene, np.flatnonzero(claim.segments))
    if sum(count for _stack, count in met) < FEW_SAMPLES:
        return bool((claim.segments & claim.scene.within(LOADER_ALONE)).any())
    return any(by_loader(frozenset(frame.file for frame in stacks.frames(stack))) for stack, _count in met)


def _title_of_prepared(claim: CauseMatch) -> str:
    if len(loader_helpers(claim.scene)):
        return WITH_WORKERS
    return WITHOUT_WORKERS if _in_pytorch_loader(claim) else PREPARED.title


WITH_WORKERS = "input unpacked on the main thread"
WITHOUT_WORKERS = "input prepared on the main thread (`num_workers=0`)"
PREPARED = Cause(
    "C12",
    "input prepared on the main thread",
    _prepared,
    _advise_prepared,
    culprit="refilled_by",
    titled=_title_of_prepared,
    kind=DiagnosisKind.INPUT,
    family="D",
    rank=190,
)

# C49: the thread that launches waits for the DataLoader's workers, whose states are not in the file.

LATE_WORKERS = Cause(
    "C49",
    "input is not ready: the DataLoader's workers are slower than the GPU",
    advice=lambda _claim: (
        "the workers are slower than the GPU: more of them (num_workers), whole batches (__getitems__), "
        "cheaper or fewer transforms, or transforms on the GPU",
        "gputop record -- python train.py shows what the workers do: compute, read from a disk, wait for "
        "a CPU",
    ),
    level=lambda _claim: Level.STRONG,
    culprit="refilled_by",
    kind=DiagnosisKind.INPUT,
    family="D",
    rank=320,
)
