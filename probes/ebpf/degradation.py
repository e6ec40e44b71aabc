"""The functions that totals and proofs of idleness need, for kernels on which each probe is dear.

With perf events a probe takes a third of a second to remove (``attach_perf.py``), so only these are
traced there: with their variants about forty symbols of each library. The table says which
(``Trait.MINIMAL``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from probes import api
from probes.api_semantics import Trait
from probes.code import communicators
from probes.code.libraries import Probe

MINIMAL: frozenset[str] = frozenset(row.name for row in api.TABLE if Trait.MINIMAL in row.traits)


def selection(probes: Iterable[Probe]) -> list[Probe]:
    """Those of them that are traced, in the order of the table: what programs call most often comes first.

    It is also the order in which they are detached, so that a launch is free again a second after the end.
    """
    kept = [probe for probe in probes if is_minimal(probe.cookie)]
    return sorted(kept, key=lambda probe: probe.cookie & (api.MAX_ROWS - 1))


def is_minimal(cookie: int) -> bool:
    """Whether the function that a probe's cookie names is one of them, or makes a communicator."""
    return communicators.is_one(cookie) or api.BY_OP[cookie & (api.MAX_ROWS - 1)].name in MINIMAL


# How much is traced: what is given up, step by step, where observing costs more than it may.


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
    """The functions of a library that are traced."""
    if reach >= Reach.NOTHING or (reach >= Reach.NO_DRIVER and layer == "driver"):
        return []
    chosen: Iterable[Probe] = selection(probes) if reach >= Reach.FEW else probes
    return list(chosen)
