"""How fast copies between a host and its GPUs go, learned from those whose begin and end are known.

A copy that met an empty GPU and was waited for took from its begin to the end of that wait. Of a copy from
pageable memory the CPU stages a part inside the call; the next one waits there until the link has moved what
was staged. Of a copy to pageable memory the CPU's part, taken for as fast as staging, is within the call,
and beside or after that of the link. What no wait tells goes at 0.8 of what NVML says of the lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gputop.explain.evidence.apiclass import D2H, H2D, Group, Role
from gputop.explain.evidence.call_time import call_time
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import FOREVER, Floats, Ints, Mask
from probes.samples import listed_gpus

PINNED_RATE = 12.0  # bytes per ns of a copy from page-locked memory where the link is not known (PCIe 3 x16)
UNSTAGED = 0.03  # ns that the CPU takes to copy a byte within memory, where no copy says it
COPY_NS = 1_500.0  # what a copy takes beside its bytes
LARGE = 256 << 10  # bytes; of smaller copies a call's own time is too much
NEAR_NS = 100_000  # a call that begins this soon after a copy waits for that copy
FEWEST = 3  # copies that say how fast they go
USUAL = 0.3  # quantile: what takes longer was held up
LEAST_ERROR = 0.05  # of a rate that was learned
OTHERS_ERROR = 0.1  # more, of a rate that was learned of other copies
WORST = 32.0  # times as long as the lanes allow: slower links are rare, by their machine or by others on them
WAITED_NS = 20_000  # a wait that is shorter may not have waited
LONGER = 1.1  # times as long as staging alone: such a copy waited for the one before


@dataclass(frozen=True, slots=True)
class Rate:
    """What a byte takes, ns; ``error``: how much longer or shorter that may be, as a share of it."""

    ns: float
    error: float


@dataclass(frozen=True, slots=True)
class CopyRates:
    """Rates by direction and by whether the host's memory is page-locked.

    Attributes:
        staging: What the CPU takes to stage a byte, ns; None where no copy says it.
        doubt: By which share the time of all copies may be off.
    """

    known: dict[tuple[int, bool], Rate]
    usual: Rate
    staging: float | None
    doubt: float = 0.0

    def of(self, direction: int, *, pinned: bool) -> Rate:
        """That of one kind of copies: its own, else of others of its direction, of any others, the usual."""
        other = D2H if direction == H2D else H2D
        for kind in ((direction, pinned), (direction, not pinned), (other, pinned), (other, not pinned)):
            if kind in self.known:
                known = self.known[kind]
                return known if kind == (direction, pinned) else Rate(known.ns, known.error + OTHERS_ERROR)
        return self.usual


NO_RATES = CopyRates({}, Rate(1 / PINNED_RATE, 0.0), None)


def link_rate(evidence: Evidence) -> float:
    """Bytes per ns of a copy over the link of a GPU: 0.8 of what NVML says of its lanes, else PCIe 3 x16."""
    for sample in reversed(evidence.gpus):
        for gpu in listed_gpus(sample):
            generation, width = gpu.get("pcie_generation"), gpu.get("pcie_width")
            if generation and width:
                return 0.8 * 0.985 * 2.0 ** (int(generation) - 3) * int(width)
    return PINNED_RATE


def copy_rates(evidence: Evidence, rows: Ints, pinned: Mask, alone: Ints, limit: Ints) -> CopyRates:
    """What copies say.

    Args:
        evidence: What was observed.
        rows: Calls that copy between host and GPU.
        pinned: Whether the host's memory of each is page-locked.
        alone: Calls that gave a stream work in which all before had ended.
        limit: Of each copy when it was proved to have ended at the latest.
    """
    calls = evidence.calls
    large = np.flatnonzero(calls["bytes"][rows] >= LARGE)
    large = large[np.argsort(rows[large], kind="stable")]
    rows, pinned, limit = rows[large], pinned[large], limit[large]
    size = calls["bytes"][rows].astype(np.float64)
    nominal = 1 / link_rate(evidence)
    if not len(rows):
        return CopyRates({}, Rate(nominal, 0.0), None)
    # no copy may end later than it is proved to: so fast they are at least
    bound = limit < FOREVER // 2
    most = (limit - calls["begin"][rows])[bound] / size[bound]
    slowest = max(min(float(most.min(initial=np.inf)), _seen(evidence), WORST * nominal), nominal)
    usual = Rate(nominal, slowest / nominal - 1)
    seen = _Copies(evidence, rows, pinned, np.isin(rows, alone))
    staging = _quantile(*seen.staging())
    known: dict[tuple[int, bool], Rate] = {}
    for direction, locked in ((H2D, True), (H2D, False), (D2H, True)):
        found = _quantile(*seen.moved(direction, pinned=locked))
        if found is not None:
            known[direction, locked] = Rate(max(found, nominal), LEAST_ERROR)
    read = _quantile(*seen.moved(D2H, pinned=False))
    if read is not None:
        known[D2H, False] = _read(read, UNSTAGED if staging is None else staging, nominal, known)
    rates = CopyRates(known, usual, staging)
    takes = [
        (float(size[mine].sum()) * rate.ns, rate.error)
        for direction in (H2D, D2H)
        for locked in (False, True)
        for mine in [(calls["direction"][rows] == direction) & (pinned == locked)]
        for rate in [rates.of(direction, pinned=locked)]
    ]
    return replace(rates, doubt=sum(ns * error for ns, error in takes) / sum(ns for ns, _error in takes))


def _read(whole: float, staging: float, nominal: float, known: dict[tuple[int, bool], Rate]) -> Rate:
    """That of copies to pageable memory: the CPU takes a part of the call, beside the link or after it."""
    least, most = max(whole - staging, nominal), max(whole, nominal)
    like = next((known[one] for one in ((D2H, True), (H2D, False), (H2D, True)) if one in known), None)
    if like is not None and least * (1 - 2 * LEAST_ERROR) <= like.ns <= most * (1 + 2 * LEAST_ERROR):
        return Rate(like.ns, 2 * LEAST_ERROR)
    middle = (least + most) / 2
    return Rate(middle, max(most / middle - 1, LEAST_ERROR))


def _seen(evidence: Evidence) -> float:
    """ns that a byte takes at most, by the fastest traffic that NVML saw on the link."""
    most = max(
        (
            float(gpu.get(key) or 0)
            for sample in evidence.gpus
            for gpu in listed_gpus(sample)
            for key in ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second")
        ),
        default=0.0,
    )
    return 1e9 / most if most else np.inf


def _quantile(took: Floats, size: Floats) -> float | None:
    """ns a byte of usual copies, by the largest of them; None of too few."""
    if len(took) < FEWEST:
        return None
    big = size >= np.median(size)
    return float(np.quantile(np.maximum(took - COPY_NS, 0)[big] / size[big], USUAL))


class _Copies:
    """Copies, and which of them tell how long they took."""

    def __init__(self, evidence: Evidence, rows: Ints, pinned: Mask, alone: Mask) -> None:
        calls = evidence.calls
        self._rows, self._pinned, self._alone = rows, pinned, alone
        self._begin, self._end = calls["begin"][rows], calls["end"][rows]
        self._size = calls["bytes"][rows].astype(np.float64)
        self._direction = calls["direction"][rows]
        self._held_up = call_time(evidence, rows).queued > 0
        behind = np.minimum(rows + 1, len(calls) - 1)
        near = (calls["row"][behind] == calls["row"][rows]) & (behind > rows)
        near &= calls["begin"][behind] - self._end < NEAR_NS
        waits = near & (evidence.group_of(behind) == Group.SYNC)
        waits &= calls["end"][behind] - calls["begin"][behind] >= WAITED_NS
        self._waited: Ints = np.where(waits, calls["end"][behind], -1)
        self._held_up |= waits & (call_time(evidence, behind).queued > 0)
        self._inside = evidence.role_of(rows) == Role.COPY_SYNC
        # the next copy of the same size, from pageable memory too
        place = np.searchsorted(rows, behind)
        place = np.minimum(place, len(rows) - 1)
        follows = near & (rows[place] == behind) & ~pinned[place] & ~pinned
        follows &= (self._direction == H2D) & (self._direction[place] == H2D)
        follows &= self._size[place] == self._size
        self._next: Ints = np.where(follows, place, -1)

    def staging(self) -> tuple[Floats, Floats]:
        """(ns, bytes) of copies that the CPU staged, and had to wait for nothing."""
        chosen = self._alone & ~self._pinned & (self._direction == H2D)
        chosen = self._calm(chosen)
        return (self._end - self._begin)[chosen].astype(np.float64), self._size[chosen]

    def moved(self, direction: int, *, pinned: bool) -> tuple[Floats, Floats]:
        """(ns, bytes) of copies that the link was at for a known time."""
        kind = (self._direction == direction) & (self._pinned == pinned)
        if direction == D2H or pinned:
            whole = np.where(self._inside | ~np.bool_(pinned), self._end - self._begin, 0)
            # what is given by the call alone begins when that returns
            whole = np.where(
                self._waited >= 0, self._waited - np.where(pinned, self._end, self._begin), whole
            )
            whole = np.where(self._inside, self._end - self._begin, whole)
            chosen = self._calm(kind & self._alone & (whole > 0))
            return whole[chosen].astype(np.float64), self._size[chosen]
        # staged: until a wait behind it ended, or until the next one had waited for it and was staged, too
        behind = self._next
        period = np.where(behind >= 0, self._end[behind] - self._end, 0)
        alone = np.where(self._alone, self._end - self._begin, 0)
        staged = _quantile(*self.staging())
        waits = behind >= 0
        if staged is not None:
            waits &= period > LONGER * staged * self._size
        else:
            waits[:] = False
        whole = np.where(
            waits, period, np.where((alone > 0) & (self._waited >= 0), self._waited - self._begin, 0)
        )
        held_up = self._held_up | (waits & self._held_up[np.maximum(behind, 0)])
        chosen = self._calm(kind & (whole > 0), held_up)
        return whole[chosen].astype(np.float64), self._size[chosen]

    def _calm(self, chosen: Mask, held_up: Mask | None = None) -> Mask:
        """Those whose thread always had its CPU, if there are enough."""
        calm: Mask = chosen & ~(self._held_up if held_up is None else held_up)
        return calm if np.count_nonzero(calm) >= FEWEST else chosen
