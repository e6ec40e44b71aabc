"""How much is traced: what is given up, step by step, where observing costs more than it may."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from probes.code.libraries import Probe
from probes.ebpf import minimal


class Reach(IntEnum):
    """Each step gives up what is named, and what those before it did."""

    ALL = 0
    NO_LINES = 1
    NO_DRIVER = 2
    FEW = 3
    NOTHING = 4

    @property
    def missing(self) -> str:
        """What is not observed, in words; "" where nothing is given up."""
        return _MISSING[self]


_MISSING = {
    Reach.ALL: "",
    Reach.NO_LINES: "lines of calls",
    Reach.NO_DRIVER: "lines of calls, and the driver's functions (cu…): programs that call only those "
    "are not seen",
    Reach.FEW: "lines, calls of the driver, and functions that totals and proofs of idleness do not need",
    Reach.NOTHING: "any call",
}


def within(probes: list[Probe], layer: str, reach: Reach) -> list[Probe]:
    """The functions of a library that are traced.

    Args:
        probes: All that could be.
        layer: Of the library: runtime, driver, nccl.
        reach: How much.
    """
    if reach >= Reach.NOTHING or (reach >= Reach.NO_DRIVER and layer == "driver"):
        return []
    chosen: Iterable[Probe] = minimal.selection(probes) if reach >= Reach.FEW else probes
    return list(chosen)
