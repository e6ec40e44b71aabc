"""``gputop diff`` where no input shows what a step is: kernels of one name and shape are the same work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gputop.analysis import compare_parts
from gputop.analysis.build import ledger_of
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.findings.step_findings import Unit
from probes.source import FRAMES, SHAPES, Sample
from probes.stacks.stack_samples import kernel_number
from tests import programs as p
from tests.items import START
from tests.loops import MIB, Loop, diff
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


CHECKS = FIRST + 11  # a kernel that looks for what is not a number


def trained(iterations: int, layers: int, *, checked: bool, shift: int) -> Loop:
    """Iterations of so many layers; each kernel may be checked, which takes most of the time."""
    loop = started(shift)
    for _ in range(iterations):
        for _layer in range(layers):
            for kind in range(8):
                loop.kernels(FIRST + kind, 1, run_delay=SMALL)
                loop.kernels(CHECKS, 3 if checked else 0, run_delay=LARGE)
        loop.kernels(FIRST + 9, 1, run_delay=LARGE)
        loop.host(100)
        loop.item()
    return loop


@pytest.mark.parametrize("layers", [(12, 12), (4, 12), (12, 24)])
def test_kernels_that_both_launch_say_how_much_work_a_step_is(layers: tuple[int, int]) -> None:
    """A layer of one may be reported as a step, an iteration of the other."""
    before = trained(40, layers[0], checked=True, shift=0)
    after = trained(60, layers[1], checked=False, shift=77)
    found = diff(before, after)
    duration = found.measure("duration_ns")
    assert duration.before is not None
    assert duration.after is not None
    real = (after.now / 60 / layers[1]) / (before.now / 40 / layers[0])
    assert duration.after.usual / duration.before.usual == pytest.approx(real, rel=0.1)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_side_without_steps_is_compared_by_the_launches_of_what_both_launch(
    monkeypatch: pytest.MonkeyPatch, *, swapped: bool
) -> None:
    def without_steps(evidence: Evidence, *stretch: Any) -> Any:
        ledger, scene, outcome = ledger_of(evidence, *stretch)
        if len(evidence.calls) > 5_000:
            scene.steps = None
        return ledger, scene, outcome

    monkeypatch.setattr(compare_parts, "ledger_of", without_steps)
    copied, kept = started(0), started(77)
    for _ in range(300):
        copied.send()
        copied.kernels(FIRST, 1, run_delay=SMALL)
        copied.call(p.COPY_ASYNC, 60, kind=D2H, bytes=2 * MIB)
        copied.call(SYNC, 100)
    for others in np.random.default_rng(1).integers(0, 9, 9_000).tolist():
        kept.kernels(FIRST, 1, run_delay=SMALL)
        kept.host(3 * others**2)
        kept.kernels(FIRST + 1, others // 5, run_delay=LARGE)
    times = (kept.now / 9_000) / (copied.now / 300)
    found = diff(kept, copied) if swapped else diff(copied, kept)
    assert found.unit is Unit.LAUNCH
    duration = found.measure("duration_ns")
    assert duration.before is not None
    assert duration.after is not None
    told = duration.after.usual / duration.before.usual
    assert told == pytest.approx(1 / times if swapped else times, rel=0.1)
    assert f"times as {'long' if swapped else 'fast'}" in found.sentence
    # of a recording that is compared in parts the launches of equal work are counted, too
    sides = [one.program.evidence() for one in ((kept, copied) if swapped else (copied, kept))]
    joined = compare_parts.finish(*(in_two_parts(one, without_steps) for one in sides))
    assert joined.unit is Unit.LAUNCH
    parts = joined.measure("duration_ns")
    assert parts.before is not None
    assert parts.after is not None
    assert parts.after.usual / parts.before.usual == pytest.approx(told, rel=0.1)


def in_two_parts(evidence: Evidence, explained: Callable[..., Any]) -> compare_parts.Compared:
    middle = (START + evidence.end_ns) // 2
    stretches = (START, middle), (middle, evidence.end_ns)
    return compare_parts.merge(
        *(compare_parts.compared_part(*explained(evidence, None, stretch)) for stretch in stretches)
    )
