"""Whether a file is newer than a program, where the clock of the day was set meanwhile."""

from __future__ import annotations

from gputop.engine.engine import Engine
from gputop.engine.wallclock import SLEWED_NS, WallClock
from probes.source import MARK, Sample

SECOND = 10**9


def test_a_clock_that_is_set_makes_no_file_newer_than_its_program() -> None:
    """By the one clock the file is older than the program, by the other one newer."""
    hour, began, changed = 3600 * SECOND, 100 * SECOND, 5000 * SECOND + 50 * SECOND
    clock = WallClock(5000 * SECOND, 5000 * SECOND)
    assert clock.is_after(changed, began) is False
    set_back = clock.seen(200 * SECOND, 200 * SECOND + 5000 * SECOND - hour)
    assert set_back.is_after(changed, began) is None
    assert set_back.is_after(changed + hour, began) is True
    assert set_back.is_after(changed - 2 * hour, began) is False


def test_a_clock_that_is_kept_right_leaves_no_doubt() -> None:
    clock = WallClock(0, 0).seen(200 * SECOND, 200 * SECOND + SLEWED_NS // 2)
    assert clock.is_after(SECOND + SLEWED_NS // 4, SECOND) is False
    assert clock.is_after(2 * SECOND, SECOND) is True


def test_what_the_clock_showed_comes_from_the_header_and_the_marks() -> None:
    engine = Engine({"clock": {"realtime_ns": 9 * SECOND, "monotonic_ns": SECOND}})
    engine.feed(Sample(MARK, 2 * SECOND, {"number": 1, "wall_ns": 30 * SECOND, "lost": {}}))
    engine.feed(Sample(MARK, 3 * SECOND, {"number": 2, "wall_ns": 5 * SECOND, "lost": {}}))
    assert engine.frame().clock == WallClock(2 * SECOND, 28 * SECOND)
