"""The ring is read twenty times a second, and less often while little comes or processes by the dozen."""

from __future__ import annotations

import pytest

from probes.observe import ring_polling
from probes.observe.ring_polling import PollInterval

POLL_S = 0.05


class Clock:
    """Time that passes where somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(ring_polling.time, "monotonic", lambda: self.now)

    def waited(self, one: PollInterval, mark: float, fill: float = 0.0) -> float:
        """The seconds to the next read."""
        begin = self.now
        for pause in one.pauses(mark, lambda: fill):
            self.now += pause + 1e-6  # a wait is never shorter, and a clock goes on
        return self.now - begin

    def reads(
        self, one: PollInterval, births: int, seconds: float, fill: float = 0.0, mark_s: float = 0.25
    ) -> int:
        """How often the ring is read while so many processes begin each second."""
        end, born, reads = self.now + seconds, 0.0, 0
        mark, since = self.now + mark_s, self.now
        while self.now < end - 1e-6:
            self.waited(one, mark, fill)
            reads += 1
            born += births * (self.now - since)
            since = self.now
            one.born(int(born))
            if self.now >= mark:
                mark += mark_s
            assert reads < 1000, "no pause between two reads"
        return reads


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_ring_is_read_twenty_times_a_second_while_it_fills(clock: Clock) -> None:
    assert 20 <= clock.reads(PollInterval(POLL_S), births=0, seconds=10, fill=0.1) / 10 <= 25


def test_it_is_read_as_often_while_single_processes_begin(clock: Clock) -> None:
    assert 19 <= clock.reads(PollInterval(POLL_S), births=20, seconds=10) / 10 <= 25


def test_a_calm_ring_is_read_at_marks_and_once_between_them(clock: Clock) -> None:
    assert 7 <= clock.reads(PollInterval(POLL_S), births=0, seconds=10) / 10 <= 9


def test_after_ten_seconds_without_a_new_process_it_is_read_at_marks_alone(clock: Clock) -> None:
    one = PollInterval(POLL_S)
    clock.reads(one, births=0, seconds=10.5)
    assert clock.reads(one, births=0, seconds=10) / 10 <= 4.1
    one.born(1)
    assert 7 <= clock.reads(one, births=0, seconds=10) / 10 <= 9
    assert clock.reads(one, births=0, seconds=10, fill=0.1) / 10 >= 20


def test_who_reads_less_often_anyway_goes_on_so(clock: Clock) -> None:
    assert 4 <= clock.reads(PollInterval(0.2), births=0, seconds=10, mark_s=1.0) / 10 <= 6


def test_while_hundreds_of_processes_begin_it_is_read_at_each_mark(clock: Clock) -> None:
    assert 4 <= clock.reads(PollInterval(POLL_S), births=240, seconds=10) / 10 <= 5


def test_a_daemon_whose_marks_are_far_apart_reads_four_times_a_second(clock: Clock) -> None:
    assert 3 <= clock.reads(PollInterval(POLL_S), births=240, seconds=10, mark_s=1.0) / 10 <= 5


def test_a_crowd_is_over_when_no_more_begin(clock: Clock) -> None:
    one = PollInterval(POLL_S)
    clock.reads(one, births=240, seconds=2)
    assert one.crowded
    clock.now += 0.25
    one.born(480)
    one.born(480)
    assert not one.crowded
    assert 7 <= clock.reads(one, births=0, seconds=10) / 10 <= 9


def test_a_ring_that_fills_is_not_left_alone(clock: Clock) -> None:
    assert clock.reads(PollInterval(POLL_S), births=240, seconds=10, fill=0.1) / 10 >= 20


def test_a_full_ring_is_read_without_a_pause(clock: Clock) -> None:
    assert clock.waited(PollInterval(POLL_S), clock.now + 1, fill=0.3) == 0


def test_a_mark_is_not_put_off(clock: Clock) -> None:
    one = PollInterval(POLL_S)
    clock.reads(one, births=240, seconds=2)
    assert one.crowded
    assert clock.waited(one, clock.now + 0.01) == pytest.approx(0.01, abs=1e-4)
