"""The functions that totals and proofs of idleness need, for kernels on which each probe is dear.

With perf events a probe takes a third of a second to remove (``attach_perf.py``), so only these are
traced there: with their variants about forty symbols of each library. The table says which
(``Trait.MINIMAL``).
"""

from __future__ import annotations

from collections.abc import Iterable

from probes import api
from probes.code import communicators
from probes.code.libraries import Probe
from probes.meaning import Trait

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
