"""How a read from the device is told: by what the program called, and what to change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gputop.explain.causes.cause import Claim
from gputop.explain.causes.drains import source_of
from gputop.explain.causes.forms import advice_for, pattern_of, title_for
from gputop.explain.chains.formwords import advice_of
from gputop.explain.chains.pytorch import Form, Pattern, form_of_read
from gputop.explain.chains.scene import SCALAR_BYTES
from gputop.explain.chains.traced import READS, SCALARS
from gputop.explain.chains.traced_words import places


def form_of_claim(claim: Claim) -> tuple[Form, Pattern]:
    """What kind of read it is, and the pattern of its calls."""
    read_row = claim.scene.gap_facts.read_row
    row = read_row[claim.gaps]
    if (row < 0).all():  # the gaps right behind the reads are another cause's: those before these gaps
        source = source_of(claim.scene)[claim.gaps]
        row = np.where(source >= 0, read_row[np.maximum(source, 0)], -1)
    pattern = pattern_of(claim, row, row, to_host=True)
    if (named := _by_operator(claim)) is not None:
        return named, replace(pattern, often=claim.times)
    return form_of_read(pattern), pattern


def _by_operator(claim: Claim) -> Form | None:
    """What the operators of an imported file say that it is; None where they do not."""
    found = places(claim.scene, np.flatnonzero(claim.segments))
    name = max(found, key=lambda one: (found[one], one), default="")
    if SCALARS.search(name):
        return "item"
    return "size" if READS.search(name) else None


def title_of_read(claim: Claim) -> str:
    """The title, by that."""
    return title_for(claim, *form_of_claim(claim))


def advise_read(claim: Claim) -> tuple[str, ...]:
    """What to change, by that."""
    form, pattern = form_of_claim(claim)
    if form == "item":
        times = claim.per_step(pattern.count)
        return advice_of(form, size=f"{SCALAR_BYTES} bytes", times=times, torch=claim.torch)
    return advice_for(claim, form, pattern)
