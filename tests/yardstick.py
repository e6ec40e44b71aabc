"""How fast this machine is at this moment: a bound on CPU time is a ratio to it."""

from __future__ import annotations

import time

USUAL_TURN_S = 8e-9  # of the machine that bounds were measured on
_TURNS = 200_000


def turn_s() -> float:
    """CPU seconds that a turn of an empty loop of Python takes: the least of three."""
    least = float("inf")
    for _ in range(3):
        began = time.thread_time()
        for _turn in range(_TURNS):
            pass
        least = min(least, time.thread_time() - began)
    return least / _TURNS
