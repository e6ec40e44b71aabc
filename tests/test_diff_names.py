"""``gputop diff`` where no input shows what a step is: kernels of one name and shape are the same work."""

from __future__ import annotations

import pytest

from gputop.explain.compare import Diff, compare
from probes.source import FRAMES, SHAPES, Sample
from probes.stacks.kernel_numbers import kernel_number
from tests import programs as p
from tests.items import START
from tests.loops import MIB, Loop
from tests.programs import D2H, MAIN, SYNC

FIRST, KINDS = 1000, 12  # handles; each is a kernel of its own name
SMALL, LARGE = 1, 2  # shapes


def started(shift: int) -> Loop:
    """A loop whose kernels have names, and shapes that are known."""
    loop = Loop(shift=shift)
    stacks = [kernel_number(MAIN, shift + FIRST + kind) for kind in range(KINDS)]
    frames = [[["/t/libtorch_cuda.so", 0, f"kernel_{kind}"]] for kind in range(KINDS)]
    sizes = [[8, 1, 1, 128, 1, 1, 0], [256, 1, 1, 128, 1, 1, 0]]
    loop.program.samples += [
        Sample(FRAMES, START, {"pid": [MAIN] * KINDS, "stack": stacks, "frames": frames}),
        Sample(SHAPES, START, {"shape": [SMALL, LARGE], "sizes": sizes}),
    ]
    return loop


def model(loop: Loop, shape: int) -> None:
    for _layer in range(3):
        loop.kernels(FIRST, 8, run_delay=shape)
    loop.host(200)


def image(loop: Loop, frame_us: int) -> None:
    """It is made for looking at, and comes to the host; the host works on it."""
    loop.kernels(FIRST + 8, 3, run_delay=LARGE)
    loop.call(p.COPY_ASYNC, 60, kind=D2H, bytes=2 * MIB)
    loop.call(SYNC, 100)
    loop.host(frame_us)


def sampled(images: int, steps: int, *, each: bool, shift: int) -> Loop:
    """Denoises in so many steps; looks at each of them, or at the last one only."""
    loop = started(shift)
    for _ in range(images):
        for _step in range(steps):
            model(loop, SMALL)
            if each:
                image(loop, 600)
        for _part in range(20):  # makes it larger
            loop.kernels(FIRST + 9, 3, run_delay=LARGE)
        if not each:
            image(loop, 900)
    return loop


def diff(before: Loop, after: Loop) -> Diff:
    return compare(before.program.evidence(), after.program.evidence())


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_a_sampler_that_looks_at_its_last_image_only_takes_as_many_steps(swapped: bool) -> None:
    """What recurs is the step before the change, and the image of 50 steps after it."""
    sides = sampled(12, 50, each=True, shift=0), sampled(12, 50, each=False, shift=77)
    before, after = sides[::-1] if swapped else sides
    found = diff(before, after)
    assert found.ratio.times == pytest.approx(1 / 50 if swapped else 50, rel=0.02)
    duration = found.measure("duration_ns")
    assert duration.before is not None
    assert duration.after is not None
    assert duration.after.usual / duration.before.usual == pytest.approx(after.now / before.now, rel=0.05)
    assert f"times as {'long' if swapped else 'fast'}" in found.sentence


def test_a_loop_over_samples_that_became_a_batch_is_a_step_still() -> None:
    """The same kernels, a sixteenth as often, in other shapes."""

    def run(calls: int, shape: int, shift: int) -> Loop:
        loop = started(shift)
        for _ in range(60):
            for _sample in range(calls):
                model(loop, shape)
            image(loop, 300)
        return loop

    found = diff(run(16, SMALL, 0), run(1, LARGE, 77))
    assert found.ratio.times == 1
    assert "times as fast" in found.sentence
