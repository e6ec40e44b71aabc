"""The functions that totals and proofs of idleness need, for kernels on which each probe is expensive.

With perf events a probe needs a third of a second to be removed (``attach_perf.py``), so only these are
traced there: with their variants about forty symbols of each library (``Trait.MINIMAL`` of the table).
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
    """Probes of these functions, in the order of the table: the most often called ones first.

    They are detached in this order, too, so that a launch is free again a second after the end.
    """
    kept = [probe for probe in probes if is_minimal(probe.cookie)]
    return sorted(kept, key=lambda probe: probe.cookie & (api.MAX_ROWS - 1))


def is_minimal(cookie: int) -> bool:
    """True if the function of a probe's cookie is one of these, or makes a communicator."""
    return communicators.is_one(cookie) or api.BY_OP[cookie & (api.MAX_ROWS - 1)].name in MINIMAL


# How much is traced: less, step by step, where observing exceeds its budget.


class Reach(IntEnum):
    """Steps of degradation: each gives up its own part and those of the steps before it."""

    ALL = 0
    NO_LINES = 1
    NO_DRIVER = 2
    FEW = 3
    NOTHING = 4

    @property
    def missing(self) -> str:
        """The part that is not observed, in words; "" for none."""
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
