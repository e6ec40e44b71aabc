"""C01, C02, C07, C03, C27: the host waits for the GPU, then works while the GPU is idle."""

from __future__ import annotations

import numpy as np

from gputop.explain.causes.cause import Cause, Claim, bursts
from gputop.explain.causes.drains import MANY_READS, Drain, drained, read_between
from gputop.explain.causes.forms import pattern_of
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.pytorch import (
    Form,
    Pattern,
    advice_of,
    form_of_read,
    form_of_send,
    form_of_sync,
    title_of,
)
from gputop.explain.chains.scene import SCALAR_BYTES, Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.explain.evidence.waits import Wait
from gputop.format import format_bytes

PRINT_BYTES = 8  # the formatter of a tensor's repr reads element by element
PRINT_READS = 50  # at least this many within PRINT_NS (causes.md C07); a step's own reads are a handful
PRINT_NS = 50_000_000
MOST_PARTS = 8  # a step: more copies to the device are no batch (causes.md C05)


_QUIET = (Group.OTHER, Group.SYNC, Group.QUERY, Group.EVENT, Group.COPY, Group.DEVICE, Group.STREAM)
_GIVING = (Group.LAUNCH, Group.SET, Group.GRAPH)


def own_work(scene: Scene) -> Mask:
    """The submitting thread's own doing: on a CPU or asleep of its own will, not in an allocating call.

    What it waits for on a pipe or a terminal is somebody else's.
    """
    quiet = scene.inside(*_QUIET) | (scene.estimated & scene.in_refill & scene.inside(*_GIVING))
    return scene.own & scene.does(State.RUN, State.BLOCKED) & quiet & ~scene.waits(Wait.DATA)


def _prints(scene: Scene, free: Mask) -> Mask:
    facts = scene.gap_facts
    tiny = np.flatnonzero((facts.read_bytes >= 0) & (facts.read_bytes <= PRINT_BYTES))
    if not len(scene.gaps):
        return scene.mask()
    in_burst = np.zeros(len(scene.gaps) + 1, np.bool_)
    in_burst[tiny] = bursts(scene.gaps.begin[tiny], PRINT_READS, PRINT_NS) & _many_a_step(scene, tiny)
    return free & own_work(scene) & (in_burst[:-1] | _formatted(scene))[scene.segments.gap]


def _many_a_step(scene: Scene, reads: Ints) -> Mask:
    """Reads of which there are many in few steps: of short steps a burst may be one read of each."""
    many = np.ones(len(reads), np.bool_)
    owner = scene.evidence.threads.pid[scene.gaps.thread[reads]]
    for pid in np.unique(owner).tolist():
        steps = scene.steps_of(pid)
        if steps is not None and steps.count:
            own = np.flatnonzero(owner == pid)
            step = np.searchsorted(steps.begin, scene.gaps.begin[reads[own]], side="right")
            many[own] = bursts(step, PRINT_READS, PRINT_READS // MANY_READS)
    return many


def _formatted(scene: Scene) -> Mask:
    """Gaps whose read was made by PyTorch's formatter of tensors, as the Python stack tells."""
    row = scene.gap_facts.read_row
    of_each = np.where(row >= 0, scene.evidence.calls["stack"][np.maximum(row, 0)], 0)
    if not of_each.any():  # of millions of gaps without lines none has to be sorted
        return np.zeros(len(row), np.bool_)
    stacks, which = np.unique(of_each, return_inverse=True)
    frames = scene.evidence.facts.stacks.frames
    known = [
        form_of_read(Pattern(files=frozenset(frame.file for frame in frames(stack)))) == "print"
        for stack in stacks.tolist()
    ]
    formatted: Mask = np.array(known, np.bool_)[which.reshape(-1)] & (row >= 0)
    return formatted


def _scalar(scene: Scene, free: Mask) -> Mask:
    size = read_between(scene)[scene.segments.gap]
    return free & own_work(scene) & (size >= 0) & (size <= SCALAR_BYTES)


def _tensor(scene: Scene, free: Mask) -> Mask:
    return free & own_work(scene) & (read_between(scene)[scene.segments.gap] > SCALAR_BYTES)


def _blocking(scene: Scene, free: Mask) -> Mask:
    moved: Mask = (drained(scene) == Drain.MOVED)[scene.segments.gap]
    return free & own_work(scene) & moved


def _explicit(scene: Scene, free: Mask) -> Mask:
    waited = scene.estimated | ~not_waited(scene)[scene.segments.gap]
    explicit: Mask = (drained(scene) == Drain.EXPLICIT)[scene.segments.gap]
    return free & own_work(scene) & waited & explicit


def not_waited(scene: Scene) -> Mask:
    """Gaps that no wait opened: a query that succeeded, where none that failed came right before it."""
    drained_by = scene.gaps.drained_by
    calls, row = scene.evidence.calls, np.maximum(drained_by, 0)
    if not len(calls):
        return np.ones(len(drained_by), np.bool_)
    before = np.maximum(row - 1, 0)
    asked = scene.evidence.group_of(row) == Group.QUERY
    polled = (scene.evidence.group_of(before) == Group.QUERY) & (calls["ret"][before] != 0)
    polled &= (calls["row"][before] == calls["row"][row]) & (row > 0)
    free: Mask = (drained_by < 0) | (asked & ~polled)
    return free


def _told(claim: Claim, form: Form, pattern: Pattern) -> tuple[str, ...]:
    return advice_of(form, size=format_bytes(max(pattern.size, 0)), times=claim.per_step(pattern.count))


def _title(claim: Claim, form: Form, pattern: Pattern) -> str:
    return title_of(form, pattern.often)


def _read(claim: Claim) -> tuple[Form, Pattern]:
    row = claim.scene.gap_facts.read_row[claim.gaps]
    pattern = pattern_of(claim, row, row, to_host=True)
    return form_of_read(pattern), pattern


def _title_of_read(claim: Claim) -> str:
    return _title(claim, *_read(claim))


def _advise_read(claim: Claim) -> tuple[str, ...]:
    form, pattern = _read(claim)
    if form == "item":
        return advice_of(form, size=f"{SCALAR_BYTES} bytes", times=claim.per_step(pattern.count))
    return _told(claim, form, pattern)


def _title_of_print(claim: Claim) -> str:
    form, pattern = _read(claim)
    return _title(claim, form, pattern) if form == "print" else PRINTS.title


def _advise_print(claim: Claim) -> tuple[str, ...]:
    return advice_of("print", size="", times=claim.per_step())


def _send(claim: Claim) -> tuple[Form, Pattern]:
    row = claim.scene.gap_facts.moved_row[claim.gaps]
    pattern = pattern_of(claim, row, row)
    form = form_of_send(pattern)
    often = (claim.times_of(pattern.count) or 0) > MOST_PARTS
    return ("moved" if form == "batch" and often else form), pattern


def _sync(claim: Claim) -> tuple[Form, Pattern]:
    gaps = claim.scene.gaps
    waits = np.where(gaps.estimated[claim.gaps], -1, gaps.drained_by[claim.gaps])
    pattern = pattern_of(claim, waits, np.full(len(waits), -1))
    return form_of_sync(pattern), pattern


PRINTS = register(
    Cause(
        "C07",
        "tensor printed or read element by element",
        _prints,
        _advise_print,
        calls_go=frozenset({"reads"}),
        titled=_title_of_print,
        family="S",
        rank=160,
    )
)
SCALAR = register(
    Cause(
        "C01",
        "`.item()` every step",
        _scalar,
        _advise_read,
        overlaps=True,
        calls_go=frozenset({"reads"}),
        titled=_title_of_read,
        family="S",
        rank=200,
    )
)
TENSOR = register(
    Cause(
        "C02",
        "device-to-host read every step (`.cpu()`, `.numpy()`)",
        _tensor,
        _advise_read,
        calls_go=frozenset({"reads", "sends"}),
        titled=_title_of_read,
        family="S",
        rank=210,
    )
)
BLOCKING = register(
    Cause(
        "C27",
        "blocking host-to-device copy every step (`.to(device)`, `.cuda()`)",
        _blocking,
        lambda claim: _told(claim, *_send(claim)),
        overlaps=True,
        calls_go=frozenset({"reads"}),
        titled=lambda claim: _title(claim, *_send(claim)),
        family="C",
        rank=220,
    )
)
EXPLICIT = register(
    Cause(
        "C03",
        "explicit synchronisation every step",
        _explicit,
        lambda claim: _told(claim, *_sync(claim)),
        overlaps=True,
        calls_go=frozenset({"reads"}),
        titled=lambda claim: _title(claim, *_sync(claim)),
        family="S",
        rank=230,
    )
)
