"""C01, C02, C07, C03: the host waits for the GPU, then works while the GPU has nothing to do."""

from __future__ import annotations

import numpy as np

from gputop.explain.apiclass import Group
from gputop.explain.causes.cause import Cause, Claim, bursts
from gputop.explain.chain import State
from gputop.explain.ranges import Mask
from gputop.explain.scene import SCALAR_BYTES, Scene
from gputop.format import format_bytes

PRINT_BYTES = 8  # the formatter of a tensor's repr reads element by element
PRINT_READS = 50  # at least this many within PRINT_NS (causes.md C07); a step's own reads are a handful
PRINT_NS = 50_000_000


_QUIET = (Group.OTHER, Group.SYNC, Group.QUERY, Group.EVENT, Group.COPY, Group.DEVICE, Group.STREAM)


def own_work(scene: Scene) -> Mask:
    """The enqueuer's own doing: on a CPU, or asleep of its own will, not inside an allocating call."""
    return scene.own & scene.does(State.RUN, State.BLOCKED) & scene.inside(*_QUIET)


def _prints(scene: Scene, free: Mask) -> Mask:
    facts = scene.gap_facts
    tiny = np.flatnonzero((facts.read_bytes >= 0) & (facts.read_bytes <= PRINT_BYTES))
    in_burst = np.zeros(len(scene.gaps) + 1, np.bool_)
    in_burst[tiny] = bursts(scene.gaps.begin[tiny], PRINT_READS, PRINT_NS)
    return free & own_work(scene) & in_burst[scene.leaves.gap]


def _scalar(scene: Scene, free: Mask) -> Mask:
    size = scene.gap_facts.read_bytes[scene.leaves.gap]
    return free & own_work(scene) & (size >= 0) & (size <= SCALAR_BYTES)


def _tensor(scene: Scene, free: Mask) -> Mask:
    return free & own_work(scene) & (scene.gap_facts.read_bytes[scene.leaves.gap] > SCALAR_BYTES)


def _explicit(scene: Scene, free: Mask) -> Mask:
    return free & own_work(scene) & (scene.gaps.opener[scene.leaves.gap] >= 0) & ~scene.estimated


def _advise_scalar(claim: Claim) -> tuple[str, ...]:
    return (
        f"a value of at most {SCALAR_BYTES} bytes is read {claim.per_step()} (.item(), float(t), if t:): "
        "keep it on the device and read it every n steps",
        "or copy it with non_blocking=True into pinned memory and look at it a step later, behind an event",
    )


def _advise_tensor(claim: Claim) -> tuple[str, ...]:
    size = int(np.median(claim.scene.gap_facts.read_bytes[claim.gaps]))
    return (
        f"{format_bytes(size)} come back {claim.per_step()} (.cpu(), .numpy(), .tolist()), and the host "
        "works on them while the GPU is idle: do that work on the device (masking, scatter, sorting have "
        "CUDA versions)",
        "what must stay on the host: gather it and copy once per step, or work on the step before while "
        "this one runs",
    )


def _advise_print(_claim: Claim) -> tuple[str, ...]:
    return ("a tensor on the device is printed or looped over element by element: print t.cpu(), and rarely",)


def _advise_explicit(claim: Claim) -> tuple[str, ...]:
    return (
        f"the host waits for the GPU {claim.per_step()} before it goes on: remove the synchronisation "
        "(torch.cuda.synchronize(), a timing), or wait for an event of the step before",
    )


PRINTS = Cause(
    "C07", "a tensor is read element by element", _prints, _advise_print, calls_go=frozenset({"reads"})
)
SCALAR = Cause(
    "C01",
    "a scalar is read in the loop",
    _scalar,
    _advise_scalar,
    overlaps=True,
    calls_go=frozenset({"reads"}),
)
TENSOR = Cause(
    "C02", "a tensor is read in the loop", _tensor, _advise_tensor, calls_go=frozenset({"reads", "sends"})
)
EXPLICIT = Cause(
    "C03",
    "an explicit synchronisation in the loop",
    _explicit,
    _advise_explicit,
    overlaps=True,
    calls_go=frozenset({"reads"}),
)
