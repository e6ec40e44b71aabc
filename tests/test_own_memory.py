"""Above its budget of memory gputop explains a shorter time, says so, and goes back when it can."""

from __future__ import annotations

import itertools
import mmap
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gputop.analysis import live
from gputop.analysis.live import LiveExplainer
from gputop.analysis.window import SLACK_NS, WINDOW_NS, Window
from gputop.engine.own_memory import (
    BUDGET_BYTES,
    FIRST_S,
    PARTS,
    SETTLE_S,
    UP_S,
    OwnMemory,
    forget_peak,
    resident_bytes,
)
from gputop.playback.feed import Explained
from probes.schema import Kind
from probes.source import Item
from tests import fake_frames as fake
from tests import items
from tests.items import MS, SECOND, START
from tests.random_recording import ticked
from tests.screen_support import feed_frame, running, text_of

MB = 1_000_000


def after(memory: OwnMemory, seconds: Iterator[int], sizes: dict[int, int], count: int) -> list[int]:
    """How much less is explained each five seconds, where that takes so many MB."""
    found = []
    for second in itertools.islice(seconds, 0, count * 5, 5):
        memory.consume(second, sizes[memory.less] * MB)
        found.append(memory.less)
    return found


def test_within_the_budget_all_is_explained() -> None:
    memory = OwnMemory()
    assert set(after(memory, itertools.count(), {0: 149}, 1_000)) == {0}
    assert memory.length(WINDOW_NS) == WINDOW_NS


def test_above_the_budget_less_is_explained_until_that_suffices() -> None:
    memory = OwnMemory()
    steps = after(memory, itertools.count(), {0: 190, 1: 170, 2: 160, 3: 155}, 100)
    assert set(steps[: int(FIRST_S) // 5]) == {0}, "what starts it does not count"
    assert steps[-1] == PARTS - 1
    apart = steps.index(2) - steps.index(1)
    assert apart * 5 >= SETTLE_S, "what the change saves is seen before the next one"
    assert memory.length(WINDOW_NS) == WINDOW_NS // 4


def test_it_goes_back_when_there_is_room_and_tries_in_vain_ever_more_seldom() -> None:
    memory, seconds = OwnMemory(), itertools.count()
    assert after(memory, seconds, {0: 190, 1: 140}, 20)[-1] == 1
    assert set(after(memory, seconds, {1: 140}, 200)) == {1}, "a longer one would take more"
    assert after(memory, seconds, {0: 90, 1: 90}, int(UP_S) // 5 + 5)[-1] == 0
    swings = after(OwnMemory(), itertools.count(), {0: 190, 1: 90}, 12 * 3_600 // 5)
    ups = sum(before > then for before, then in itertools.pairwise(swings))
    assert 3 <= ups <= 12


def test_the_memory_of_a_child_counts() -> None:
    alone = resident_bytes()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "held = b'x' * 60_000_000; print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert resident_bytes() > alone + 50 * MB
        child.communicate(b"\n")


def test_a_peak_that_has_passed_counts() -> None:
    assert forget_peak()
    before = resident_bytes(peak=True)
    # not by malloc: another test of this process may have told it to keep what is freed
    with mmap.mmap(-1, 60 * MB) as held:
        for page in range(0, 60 * MB, mmap.PAGESIZE):
            held[page] = 1
    assert resident_bytes() < before + 30 * MB
    assert resident_bytes(peak=True) > before + 50 * MB
    assert forget_peak()
    assert resident_bytes(peak=True) < before + 30 * MB


def launches(seconds: int) -> Iterator[Item]:
    """A kernel and a wait for it each 5 ms, of a new process."""
    yield items.apis()
    yield items.process(10, start_ns=START)
    records = [items.event(Kind.FORK, START + 1, pid=10, tid=10)]
    for number in range(seconds * 200):
        time_ns = START + MS + number * 5 * MS
        records.append(items.call(time_ns + 5_000, 5_000, stream=0x5000))
        wait_ns = time_ns + 2 * MS
        records.append(items.call(wait_ns, 2 * MS - 10_000, "cudaStreamSynchronize", stream=0x5000))
    yield from ticked(records)


def test_a_shorter_explanation_keeps_as_much_less_and_finds_the_same() -> None:
    whole, shorter = Window(items.HEADER), Window(items.HEADER)
    for number, item in enumerate(launches(40)):
        for window in (whole, shorter):
            window.feed(item)
        if number == 60:  # after fifteen seconds
            shorter.length_ns = WINDOW_NS // 4
    mine_kept, all_kept = (len(window.evidence().calls) for window in (shorter, whole))
    assert mine_kept <= (WINDOW_NS // 4 + 2 * SLACK_NS + SECOND) * 400 // SECOND < 0.6 * all_kept
    assert whole.end_ns - shorter.begin_ns == WINDOW_NS // 4
    mine, all_of_it = shorter.verdict().report, whole.verdict().report
    assert mine.duration_ns == WINDOW_NS // 4
    assert all_of_it.idle.lower > SECOND
    assert mine.idle.lower == pytest.approx(all_of_it.idle.lower / 4, rel=0.02)
    assert mine.idle.upper == pytest.approx(all_of_it.idle.upper / 4, rel=0.02)


def test_a_live_explainer_above_its_budget_shortens_what_it_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [BUDGET_BYTES + 1]
    monkeypatch.setattr(live, "resident_bytes", lambda *, peak: used[0])
    monkeypatch.setattr("gputop.engine.own_memory.FIRST_S", 0.0)
    explainer = LiveExplainer(items.HEADER)
    explainer.memory = OwnMemory()
    explainer.start()
    for item in launches(13):
        explainer.feed(item)
    deadline = time.monotonic() + 120
    while not explainer.memory.less and explainer.thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    last = items.mark(99, START + 13 * SECOND + MS)
    explainer.feed(last)
    while not explainer.shortened_ns and time.monotonic() < deadline:
        time.sleep(0.01)
    explainer.close()
    assert explainer.failure == ""
    assert explainer.shortened_ns == WINDOW_NS * 3 // 4
    assert all(window.length_ns == WINDOW_NS for _mark, window in explainer.checkpoints), "the past is whole"


async def test_the_screen_says_so() -> None:
    async with running(fake.frame(), (140, 40)) as screen:
        app, _, pilot = screen
        await feed_frame(screen, replace(fake.frame(), number=90))
        assert "150MB" not in text_of(app)
        app.view.explained = Explained(shortened_ns=WINDOW_NS // 2)
        assert app.view.status.reduced == ("over 150MB: WHY of 5s",)
        app.show()
        await pilot.pause()
        assert "over 150MB: WHY of 5s" in text_of(app)
        await pilot.press("exclamation_mark")
        await pilot.pause()
        assert "WHY explains the last 5 seconds instead of 10" in " ".join(text_of(app).split())
