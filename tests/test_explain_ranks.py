"""What a rank that comes late costs the others: no more than their GPUs can have waited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.explain.causes.ranks import Use, of_lateness, waited
from tests import fake_reports as why

MS = 1_000_000


def use(work: int, idle: int, device: int = 0) -> Use:
    """Work and idle time in ms."""
    return Use(device, work * MS, idle * MS)


@pytest.mark.parametrize(
    ("apart", "own", "late", "told"),
    [
        (2_000, None, None, (2_000, True)),  # nobody says what the GPUs did
        (3_900, use(1_000, 0), None, (3_900, True)),
        (3_900, use(1_000, 0), use(1_000, 400, device=1), (400, False)),  # the host was ahead of its GPU
        (3_900, use(1_000, 100), use(1_300, 400, device=1), (600, False)),  # the late rank had more work
        (3_900, use(1_000, 500), use(1_000, 400, device=1), (0, False)),
        (300, use(1_000, 0), use(1_000, 400, device=1), (300, True)),
        (2_000, use(1_000, 0), use(1_000, 400), (2_000, True)),  # one GPU for both: nothing follows
    ],
)
def test_a_gpu_waits_for_no_longer_than_it_can(
    apart: int, own: Use | None, late: Use | None, told: tuple[int, bool]
) -> None:
    found = waited(apart * MS, own, late)
    assert (found[0] // MS, found[1]) == told


def test_what_a_late_rank_is_late_by_counts_once_and_for_the_straggler() -> None:
    straggler = why.finding("C23", 400, kind="waste", pid=7)
    prepares, reads = why.finding("C12", 450, pid=7), why.finding("C02", 300, pid=8)
    assert [round(ns / MS) for ns in of_lateness([prepares, straggler, reads])] == [-400, 400, 0]
    less = replace(prepares, loss=why.finding("C12", 100).loss)
    assert [round(ns / MS) for ns in of_lateness([less, straggler, reads])] == [-100, 100, 0]
    assert of_lateness([prepares, reads]) == [0, 0]
