"""GPU time of kernels, estimated from waits that held different mixtures of them.

Where the GPU was busy from one moment to another, and a wait tells the latter, that time is the sum of what
its kernels took: one equation, with one unknown for each kernel in each shape. Many waits with different
mixtures are a system of linear equations, solved by least squares of the relative errors. What is asked is
the time of all launches of a kernel, a linear function of the unknowns. It can be told where it is a
combination of the equations (it is *estimable*: Searle, Linear Models, 1971), even if its parts cannot;
kernels that come in the same proportion in every wait cannot be told apart. Its error is twice the standard
error that holds whatever the variances of the waits are (HC3: MacKinnon and White 1985), and what the program
did not certainly wait for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gputop.engine.intervals import expand
from gputop.explain.estimates.learned import WAITS, Learned, busy_stretches, learn
from gputop.explain.estimates.model import LEAST_ERROR
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.identity import group_ids
from gputop.explain.evidence.ranges import Floats, Ints, Mask, covered
from gputop.explain.proofs.gaps import GpuTime
from gputop.explain.proofs.streams import PER_THREAD
from gputop.explain.proofs.workqueue import Queue, queue_of

MOST_KERNELS = 400  # kernels and shapes: so many unknowns take a tenth of a second
SPARE = 8  # more waits than unknowns that can be told
WAITED = 0.5  # of a busy stretch the program must have waited for certainly
WORST = 0.5  # of a time: an error above it says nothing
_LEAST_NS = 20_000.0  # how well the end of a wait is known counts for shorter ones
_ALIKE = 1e-9  # of the largest: an eigenvalue below it is none
_OUTSIDE = 1e-6  # of its length: what a combination of the equations may miss


class GpuTimeOf(NamedTuple):
    """Estimated GPU time, ns, and by how much it may be off."""

    ns: float
    error_ns: float


@dataclass(frozen=True, slots=True)
class Mixtures:
    """The equations of one GPU's waits, solved.

    Attributes:
        rows: Calls that launch kernels there, ascending; ``unknown`` is the number of each one's unknown.
        solution: Of each unknown, ns.
        basis: Columns that span what can be told.
        lever: For each equation and unknown by how much the equation's error moves it.
        residual: Of each equation, as HC3 takes it.
        sure: The share of the equations' time for which the program certainly waited.
    """

    rows: Ints
    unknown: Ints
    solution: Floats
    basis: Floats
    lever: Floats
    residual: Floats
    sure: float

    def among(self, rows: Ints) -> Mask:
        """Which of some calls launch kernels on this GPU, outside of graphs."""
        place = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        found: Mask = self.rows[place] == rows
        return found

    def time(self, rows: Ints) -> GpuTimeOf | None:
        """The GPU time of these launches, all of them on this GPU; None where it cannot be told."""
        counts = np.bincount(self.unknown[np.searchsorted(self.rows, rows)], minlength=len(self.solution))
        wanted = counts.astype(np.float64)
        length = float(np.linalg.norm(wanted))
        if float(np.linalg.norm(wanted - self.basis @ (self.basis.T @ wanted))) > _OUTSIDE * length:
            return None
        ns = float(wanted @ self.solution)
        moved = (self.lever @ wanted) * self.residual
        error = 2 * float(np.sqrt(moved @ moved)) + (LEAST_ERROR + 1 - self.sure) * ns
        return GpuTimeOf(ns, error) if 0 < error <= WORST * ns else None


def mixtures(
    evidence: Evidence,
    gpu: GpuTime,
    device: int,
    operations: int,
    known: tuple[Queue, Learned | None] | None = None,
) -> Mixtures | None:
    """The equations of one GPU; None where too few waits say something, or kernels ran side by side.

    Args:
        evidence: What was observed.
        gpu: The proofs.
        device: The GPU.
        operations: By so many of its queue.
        known: Its queue and what was learned of that, where it was made before.
    """
    queue, learned = known if known is not None else (queue_of(evidence, gpu, device), None)
    if known is None:
        learned = learn(gpu, device, queue, operations)
    launched = np.flatnonzero(queue.kernel & (queue.row >= 0))
    if learned is None or not len(launched):
        return None
    calls, rows = evidence.calls, queue.row[launched]
    own = np.where(calls["stream"][rows] == PER_THREAD, calls["tid"][rows], 0)
    if group_ids(calls["pid"][rows], calls["stream"][rows], own).any():  # two streams share the GPU's time
        return None
    number = group_ids(*(calls[name][rows] for name in ("pid", "op", "aux", "shape")))
    unknowns = int(number.max()) + 1
    code = np.full(len(queue), unknowns)  # of kernels that no call names
    code[launched] = number
    found = _equations(gpu, device, queue, learned, operations, code, unknowns + 1)
    if found is None:
        return None
    order = np.argsort(rows, kind="stable")
    return _solved(*found, rows[order], number[order])


def _equations(
    gpu: GpuTime, device: int, queue: Queue, learned: Learned, operations: int, code: Ints, unknowns: int
) -> tuple[Floats, Floats, float] | None:
    """(how often each unknown is in each equation, the sums in ns, the share that was waited for)."""
    first, last, at = busy_stretches(gpu, device, queue, learned, operations)
    spent = at - queue.ready[first]
    waited = covered(gpu.pending(device), queue.ready[first], at)
    # what begins in the middle of what was given since a proof begins where what was learned says so: its
    # mixture is no other than that of the whole, and would be told apart by nothing but what was learned
    whole = (first == 0) | (queue.group[first] != queue.group[np.maximum(first - 1, 0)])
    sure = whole & (waited >= WAITED * spent)
    first, last, at, spent, waited = (column[sure] for column in (first, last, at, spent, waited))
    if len(first) < WAITS or unknowns > MOST_KERNELS:
        return None
    owner, row = expand(first, last + 1)
    kernel = queue.kernel[row]
    counts = np.zeros((len(first), unknowns))
    np.add.at(counts, (owner[kernel], code[row[kernel]]), 1.0)
    moved = np.bincount(owner, weights=np.where(kernel, 0.0, queue.fixed[row]), minlength=len(first))
    return counts, np.maximum(spent - moved, 1.0), float(waited.sum() / max(spent.sum(), 1))


def _solved(counts: Floats, sums: Floats, sure: float, rows: Ints, unknown: Ints) -> Mixtures | None:
    """Least squares of relative errors, by the eigenvectors of the normal equations."""
    weight = 1 / np.maximum(sums, _LEAST_NS)
    weighed, target = counts * weight[:, None], sums * weight
    size = np.linalg.norm(weighed, axis=0)
    size[size == 0] = 1.0
    weighed /= size
    values, vectors = np.linalg.eigh(weighed.T @ weighed)
    held = values > _ALIKE * values[-1]
    rank = int(np.count_nonzero(held))
    if len(sums) < rank + SPARE:
        return None
    vectors = vectors[:, held]
    inverse = vectors / values[held] @ vectors.T
    lever = weighed @ inverse  # of the scaled unknowns
    leverage = np.minimum(np.einsum("ij,ij->i", lever, weighed), 1 - 1e-6)
    solution = inverse @ (weighed.T @ target)
    residual = (target - weighed @ solution) / (1 - leverage)
    basis, _triangle = np.linalg.qr(vectors * size[:, None])
    return Mixtures(rows, unknown, solution / size, basis, lever / size, residual, sure)
