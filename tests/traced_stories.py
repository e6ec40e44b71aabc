"""What only a profiler's file can show, as small programs: ``tests/cause_stories.py`` lists them."""

from __future__ import annotations

from tests.programs import Program
from tests.traced_programs import RANGE, Traced

STEPS, STEP_US = 30, 10_000


def queued() -> Program:
    """Everything is launched at once; the second kernel starts 4 ms after the first has ended."""
    traced = Traced()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        traced.gives(begin, begin + 10, (begin + 20, begin + 2_000))
        traced.call("cudaStreamWaitEvent", begin + 15, begin + 18)
        traced.gives(begin + 20, begin + 30, (begin + 6_000, begin + 9_980), name="attention", on=13)
    return traced.made()


def back_to_back() -> Program:
    """Kernels of 20 us with 3 us between them, launched 2 ms before."""
    traced = Traced()
    for number in range(2_000):
        begin = 2_000 + 23 * number
        traced.gives(10 * number // 2, 10 * number // 2 + 4, (begin, begin + 20), name=f"kernel{number % 7}")
    return traced.made()


def late_workers() -> Program:
    """A loader with workers gives a batch every 10 ms; the GPU needs three."""
    traced = Traced()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        traced.within(RANGE, name, begin + 3_000, begin + STEP_US - 50)
        traced.gives(begin, begin + 10, (begin + 20, begin + 3_020))
    return traced.made()
