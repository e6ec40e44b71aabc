"""A few stories of ``make stories``, short: PyTorch programs as people write them, truth beside answer.

Needs what ``make torch-cuda`` or ``make torch`` installs beside the repository; skipped where neither is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest

from tests.stories import installed
from tests.stories.catalogue import PAIRS, STORIES
from tests.stories.judge import Verdict, changed, judged
from tests.stories.recording import record
from tests.stories.stranger import Stranger, painted

pytestmark = [pytest.mark.ebpf, pytest.mark.xdist_group("faults")]
long = partial(pytest.param, marks=pytest.mark.long)
SECONDS, SEED = 4.0, 1
# the others, changes and what holds of every story are left to the long form
TOLD = ("S1-direct", long("S1-loader"), long("sync-item"), long("train-plain"))
FACTOR = 1.5  # a short run on a busy machine: the whole table holds diff to 10 %


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Verdict]:
    """What is reported of a story, by its name; each is run once."""
    if not installed.wheel() and not installed.cpu_build():
        pytest.skip(f"no PyTorch in {installed.cache()}: make torch-cuda, or make torch")
    backend = "cuda" if installed.wheel() else "shim"
    folder: Path = tmp_path_factory.mktemp("stories")

    @cache
    def verdict(name: str) -> Verdict:
        return judged(record(STORIES[name], SEED, folder / name, SECONDS, backend))

    return verdict


@pytest.mark.parametrize("name", TOLD)
def test_what_is_reported_of_idleness_holds(told: Callable[[str], Verdict], name: str) -> None:
    one = told(name)
    print(one.truth, one.answer.report["gpu_idle_ns"], one.answer.span_ns)
    assert one.bounds_hold
    assert one.near


@pytest.mark.parametrize("name", TOLD)
def test_the_class_is_right(told: Callable[[str], Verdict], name: str) -> None:
    one = told(name)
    assert one.class_right, one.answer.bound_by


@pytest.mark.parametrize("name", ["S1-direct", long("sync-item")])
def test_the_first_cause_is_reported_at_its_line(told: Callable[[str], Verdict], name: str) -> None:
    one = told(name)
    assert one.cause_right, one.answer.first
    assert one.line_right or one.starved, one.answer.lines
    # the last seconds alone may have been the ones without a CPU, in which it calls seldom
    without = "starved of CPU" in one.screen.text or (one.starved and "too few CUDA calls" in one.screen.text)
    assert one.screen_right or without, one.screen.text


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("name", [name for name, story in STORIES.items() if story.fix])
def test_a_stranger_names_cause_line_and_fix_from_the_first_screen(
    told: Callable[[str], Verdict], name: str, size: tuple[int, int]
) -> None:
    stranger = Stranger(told(name), painted(told(name).run, size))
    if told(name).starved and "starved of CPU" in stranger.screen.text:
        return  # others took its CPU in these seconds, and that is what a stranger is told
    assert stranger.names_cause, stranger.screen.text
    assert stranger.names_line, stranger.screen.text
    assert stranger.names_fix, stranger.screen.text


@pytest.mark.long
def test_a_change_of_a_hundred_times_is_reported(told: Callable[[str], Verdict]) -> None:
    (pair,) = [one for one in PAIRS if (one.before, one.after) == ("S1-loader", "S1-direct")]
    change = changed(pair, told(pair.before), told(pair.after))
    assert change.direction_right
    ratio = change.difference.ratio
    assert ratio is not None
    assert 1 / FACTOR < ratio / change.clocks < FACTOR
