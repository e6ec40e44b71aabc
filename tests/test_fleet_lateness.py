"""A rank is named late when the others wait for it, by its milliseconds, and only then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gputop.fleet.ranks.alignment import FEWEST, UNKNOWN, Alignment, align
from gputop.fleet.ranks.lateness import CollectiveTimes, behind, blamed, judge
from tests.synthetic_ranks import MS, job

JOBS, LATE = 125, 40


@pytest.mark.long
@pytest.mark.slow
def test_of_125_jobs_with_wrong_clocks_the_40_late_ranks_are_named_with_their_milliseconds_and_no_other() -> (
    None
):
    chance = np.random.default_rng(1)
    named = 0
    for seed in range(JOBS):
        late = int(chance.integers(8)) if seed < LATE else -1
        ms = float(chance.uniform(2, 60))
        verdict = judge(job(seed, late=late, late_ms=ms).meetings)
        if late < 0:
            assert verdict.late is None, seed
            assert verdict.healthy, verdict.why
            continue
        assert verdict.late == late, (seed, verdict.why)
        assert abs(verdict.late_ns / MS - ms) <= 0.05 * ms, (seed, verdict, ms)
        named += 1
    assert named == LATE


@pytest.mark.parametrize("waits", [1.0, 0.6])
def test_clocks_that_are_shifted_drift_and_change_their_speed_are_aligned_within_the_error_that_is_reported(
    waits: float,
) -> None:
    for seed in range(5):
        made = job(seed, late=3, late_ms=9, waits=waits, meetings=200)
        aligned = align(made.meetings.begin, made.meetings.end, made.meetings.slack, made.meetings.clock)
        assert isinstance(aligned, Alignment)
        off = np.abs(aligned.later_ns + made.ahead)
        assert (off[:, 1:] <= 3 * aligned.error_ns[1:]).mean() > 0.95
        assert (aligned.error_ns[1:] < MS / 4).all(), "what it rests on is known to some 30 us"
        assert aligned.error_ns[0] == 0


def test_of_ends_that_hosts_waited_for_at_once_and_later_the_first_ones_align_the_clocks() -> None:
    made = job(29, late=3, late_ms=9, meetings=120).meetings
    later = np.arange(120) % 4 > 0  # the host goes on to its next step, for which the late rank takes longer
    end, slack = made.end.copy(), made.slack.copy()
    end[later, 3] += 9 * MS
    slack[later] = 12 * MS
    verdict = judge(replace(made, end=end, slack=slack))
    assert verdict.late == 3
    assert verdict.late_ns / MS == pytest.approx(9, rel=0.05)
    assert verdict.error_ns < MS / 4
    blurred = judge(replace(made, end=made.end + (np.arange(8) == 3) * 9 * MS, slack=made.slack + 12 * MS))
    assert (blurred.late, blurred.healthy) == (None, False)
    assert blurred.error_ns > 12 * MS


def test_ranks_of_one_host_need_no_alignment_and_nobody_has_to_wait() -> None:
    made = job(7, late=2, late_ms=5, hosts=1, waits=0)
    verdict = judge(made.meetings)
    assert (verdict.late, verdict.error_ns) == (2, 0)


def test_two_ranks_are_enough() -> None:
    assert judge(job(3, late=1, late_ms=8, ranks=2, hosts=2).meetings).late == 1


@pytest.mark.parametrize(("count", "known"), [(FEWEST - 1, False), (FEWEST, True)])
def test_nothing_is_reported_of_fewer_than_twenty_collectives(count: int, known: bool) -> None:
    verdict = judge(job(5, late=1, late_ms=20, meetings=count).meetings)
    assert (verdict.late == 1) is known
    assert (str(FEWEST) in verdict.why) is not known
    assert not verdict.healthy


def test_nothing_is_reported_where_hosts_did_not_wait_for_enough_collectives() -> None:
    verdict = judge(job(5, late=1, late_ms=20, waits=0.1).meetings)
    assert (verdict.late, verdict.healthy) == (None, False)
    assert "align clocks" in verdict.why


def test_a_rank_of_whose_collectives_too_few_were_seen_makes_nothing_known() -> None:
    made = job(5, late=1, late_ms=20).meetings
    begin = made.begin.copy()
    begin[: len(begin) - FEWEST + 1, 4] = UNKNOWN
    verdict = judge(replace(made, begin=begin))
    assert (verdict.used, verdict.late, verdict.healthy) == (FEWEST - 1, None, False)


def test_a_host_that_is_behind_while_its_gpu_has_work_is_not_reported_to_be_late() -> None:
    verdict = judge(job(11, late=6, late_ms=12, hidden=True).meetings)
    assert (verdict.late, verdict.healthy) == (None, False)
    assert "has work" in verdict.why


def test_a_rank_whose_gpu_is_proved_empty_when_it_calls_late_keeps_the_others_waiting() -> None:
    made = job(11, late=6, late_ms=12, hidden=True).meetings
    verdict = judge(replace(made, drained=np.ones(made.begin.shape, np.bool_)))
    assert verdict.late == 6


def test_a_rank_that_is_late_now_and_then_is_not_named() -> None:
    made = job(13, hosts=1).meetings
    begin = made.begin.copy()
    begin[::3, 5] += 30 * MS
    assert judge(replace(made, begin=begin, end=np.where(made.end >= 0, made.end + 30 * MS, -1))).healthy


def test_a_rank_that_is_always_a_little_late_is_not_worth_a_word() -> None:
    verdict = judge(job(17, late=2, late_ms=0.2, jitter_ms=0.001, hosts=1).meetings)
    assert verdict.healthy


def test_clocks_that_may_be_off_by_more_than_a_rank_is_late_name_nobody() -> None:
    made = job(19, late=4, late_ms=2, jitter_ms=0.1).meetings
    chance = np.random.default_rng(19)
    noise = np.abs(chance.normal(0, 3 * MS, made.end.shape)).astype(np.int64)
    verdict = judge(replace(made, end=made.end + noise))
    assert (verdict.late, verdict.healthy) == (None, False)


def test_collectives_of_two_jobs_that_are_no_pair_are_refused() -> None:
    one, other = job(1, hosts=2, ranks=4).meetings, job(2, hosts=2, ranks=4, meetings=80).meetings
    begin = np.hstack([one.begin, np.roll(other.begin, 1, axis=0) + 3 * MS])
    end = np.hstack([one.end, other.end])
    mixed = CollectiveTimes(
        begin,
        end,
        np.hstack([one.slack, other.slack]),
        np.hstack([one.idle, other.idle]),
        np.hstack([one.drained, other.drained]),
        np.array([0, 0, 1, 1, 2, 2, 3, 3]),
        one.period_ns,
    )
    chance = np.random.default_rng(3)
    mixed.end[:, 4:] += np.cumsum(chance.integers(0, 200 * MS, (80, 1)), axis=0)
    verdict = judge(mixed)
    assert (verdict.late, verdict.healthy) == (None, False)


def test_causes_are_named_when_they_cover_the_lateness_and_the_others_have_less_of_them() -> None:
    made = job(23, late=3, late_ms=10).meetings
    late_ns = judge(made).late_ns
    of_all = np.full(made.begin.shape, 30 * MS)
    own = np.zeros(made.begin.shape, np.int64)
    own[:, 3] = 9 * MS
    assert [cause for cause, _ in blamed({"C01": of_all, "C12": own}, 3, late_ns)] == ["C12"]
    assert blamed({"C01": of_all, "C12": own * 7 // 9}, 3, late_ns) == [], "less than 80 % of it"
    assert blamed({"C01": of_all}, 3, late_ns) == [], "every rank has it"
    assert blamed({}, 3, late_ns) == []


def test_a_rank_is_late_once_for_a_burst_of_collectives() -> None:
    """A step reduces twelve buckets, and each is waited for: it loses 12 ms in all, not each time."""
    made, buckets = job(29, late=3, late_ms=12).meetings, 12
    later = np.tile(np.arange(buckets) * MS // 10, len(made.begin))[:, None]
    wide = {
        name: np.repeat(getattr(made, name), buckets, axis=0) for name in ("begin", "end", "slack", "idle")
    }
    burst = replace(
        made,
        begin=wide["begin"] + later,
        end=np.where(wide["end"] >= 0, wide["end"] + later, -1),
        slack=wide["slack"],
        idle=wide["idle"],
        drained=np.repeat(made.drained, buckets, axis=0),
        period_ns=made.period_ns / buckets,
    )
    one, many = judge(made), judge(burst)
    assert many.late == one.late == 3
    assert many.share == pytest.approx(one.share, rel=0.1)


def test_shares_of_causes_are_no_more_than_all_of_the_lateness() -> None:
    """The GPU is idle for longer than the rank is late: it waited before, too."""
    work = np.zeros((60, 4), np.int64)
    work[:, 2] = 25 * MS
    assert dict(blamed({"C28": work}, 2, 10 * MS)) == {"C28": 1.0}


def test_several_causes_cover_it_together_the_largest_first_and_what_was_unusual_counts_for_nothing() -> None:
    shape = (60, 4)
    works, starved, little, first = (np.zeros(shape, np.int64) for _ in range(4))
    works[:, 2], starved[::2, 2], little[:, 2] = 6 * MS, 7 * MS, MS // 4
    first[0, 2] = 1200 * MS
    found = blamed({"C13": starved, "C01": works, "C06": little, "C27": first}, 2, 10 * MS)
    assert [cause for cause, _ in found] == ["C01", "C13"]
    assert dict(found) == pytest.approx({"C01": 0.6, "C13": 0.35}, abs=0.02)


def test_how_far_a_rank_is_behind_is_reported_by_the_middle_of_the_others() -> None:
    assert behind(np.array([[1, 2, 3, 90], [1, 2, 3, 8]]), 3).tolist() == [88.0, 6.0]
