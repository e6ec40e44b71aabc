"""What a user of the daemon is shown: their own, and of others numbers and sums only."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gputop.analysis.evidence.gatherer import LossFinder, records_before, sample_of
from gputop.serve.clients.owners import Owners
from gputop.serve.clients.user_view import UserView
from probes.activities import activity_rows, activity_samples, unknown_rows
from probes.schema import Kind, Records, join
from probes.source import (
    CARRIED,
    FILES,
    FRAMES,
    MARK,
    NAMES,
    NOTE,
    OPEN,
    PROBLEM,
    PROCESS,
    SHAPES,
    Item,
    Sample,
)
from tests import items as made
from tests.items import START

MINE, OTHERS, ME = 10, 20, 1000


def _owners() -> Owners:
    owners = Owners()
    for pid, uid in ((MINE, ME), (OTHERS, 0)):
        facts = {"pid": pid, "uid": uid, "name": "n", "command": f"command of {uid}", "start_ns": 1}
        owners.consume(Sample(PROCESS, START, facts))
    return owners


def _shown(owners: Owners, *tick: Item) -> list[Item]:
    for item in tick:
        owners.consume(item)
    return list(UserView(ME, owners).items(tick))


def _numbered(*rows: tuple[int, int, int]) -> Records:
    """(process, CPU, number) of calls."""
    parts = []
    for at, (pid, cpu, seq) in enumerate(rows):
        parts.append(made.call(START + at + 1, 1, pid=pid, tid=pid, cpu=cpu, seq=seq))
    return join(parts)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 7),
)
def test_what_is_left_out_is_no_loss_and_what_was_lost_stays_one(
    rows: list[tuple[bool, int, bool]], batch: int
) -> None:
    """A record is the user's or not, on a CPU, lost or not; the truth: those lost between the user's."""
    seq, numbered, lost = [0, 0], [], [0, 0]
    counted = 0
    begun = [False, False]
    for mine, cpu, gone in rows:
        seq[cpu] += 1
        if gone:
            lost[cpu] += 1
            continue
        numbered.append((MINE if mine else OTHERS, cpu, seq[cpu]))
        if mine:
            counted += lost[cpu] if begun[cpu] else 0
            lost[cpu], begun[cpu] = 0, True
    owners = _owners()
    view, finder = UserView(ME, owners), LossFinder(START, cut=True)
    for first in range(0, len(numbered), batch):
        for item in view.items([_numbered(*numbered[first : first + batch])]):
            assert not isinstance(item, Sample)
            assert set(item["pid"].tolist()) == {MINE}
            finder.add(item)
    assert finder.records == counted


def test_root_sees_every_item_as_it_is() -> None:
    owners = _owners()
    tick: list[Item] = [_numbered((OTHERS, 0, 1)), Sample(NOTE, START, {"text": "/home/x"})]
    assert list(UserView(0, owners).items(tick)) == tick


def test_of_anothers_process_only_numbers_and_times_are_told() -> None:
    facts = {
        "pid": OTHERS, "uid": 0, "name": "n", "command": "secret", "user": "root", "container": "docker 1",
        "start_ns": 5, "cuda_visible_devices": "3", "watched": True, "pod": "p", "job_id": "7",
    }  # fmt: skip
    (shown,) = _shown(_owners(), Sample(PROCESS, START, facts))
    assert isinstance(shown, Sample)
    assert shown.data == {"pid": OTHERS, "start_ns": 5, "watched": True, "name": "(another user's)"}


def test_rows_of_others_are_taken_out_of_tables() -> None:
    owners = _owners()
    both: dict[str, list[Any]] = {"pid": [MINE, OTHERS]}
    for kind, columns in {
        NAMES: {"tid": [MINE, OTHERS], "name": ["a", "b"]},
        OPEN: {"tid": [MINE, OTHERS], "op": [1, 2]},
        FRAMES: {"stack": [1, 2], "frames": [[["a.py", 1, "f"]], [["b.py", 1, "g"]]]},
        FILES: {"fd": [1, 2], "what": ["file:/a", "file:/b"]},
    }.items():
        (shown,) = _shown(owners, Sample(kind, START, both | columns))
        assert isinstance(shown, Sample)
        assert shown.data == {key: values[:1] for key, values in (both | columns).items()}


def _launches(*rows: tuple[int, int]) -> Records:
    """(process, number of the shape) of calls."""
    parts = []
    for at, (pid, shape) in enumerate(rows):
        one = made.call(START + at + 1, 1, "cudaLaunchKernel", pid=pid, tid=pid)
        one["run_delay"] = shape
        parts.append(one)
    return join(parts)


def _sizes(number: int) -> list[int]:
    return [number, 1, 1, 32, 1, 1, 0]


def test_of_the_shapes_of_launches_a_user_is_told_their_own_and_each_once() -> None:
    """What somebody's kernels are launched with says much of what they compute."""
    owners = _owners()
    everybodys = Sample(SHAPES, START, {"shape": [1, 2, 3], "sizes": [_sizes(one) for one in (1, 2, 3)]})
    owners.consume(everybodys)
    view = UserView(ME, owners)
    ticks: list[list[Item]] = [
        [everybodys, _launches((OTHERS, 1), (MINE, 2))],
        [_launches((MINE, 2), (MINE, 3), (OTHERS, 1), (MINE, 0))],
        [_launches((OTHERS, 1), (MINE, 3))],
    ]
    told = [item.data for tick in ticks for item in view.items(tick) if isinstance(item, Sample)]
    assert told == [{"shape": [2], "sizes": [_sizes(2)]}, {"shape": [3], "sizes": [_sizes(3)]}]
    assert view.known_shapes(START).data == {"shape": [2, 3], "sizes": [_sizes(2), _sizes(3)]}


def test_shapes_of_calls_from_before_a_recording_are_reported_with_the_calls() -> None:
    owners = _owners()
    owners.consume(Sample(SHAPES, START, {"shape": [1, 2], "sizes": [_sizes(1), _sizes(2)]}))
    before = sample_of(_launches((OTHERS, 1), (MINE, 2)), [], START)
    shapes, calls = UserView(ME, owners).sample(before)
    assert shapes.data == {"shape": [2], "sizes": [_sizes(2)]}
    assert records_before(calls.data)[0]["pid"].tolist() == [MINE]


def test_a_kind_of_sample_that_is_not_known_is_not_reported() -> None:
    assert _shown(_owners(), Sample("a-kind-of-tomorrow", START, {"pid": MINE})) == []


def test_notes_and_problems_that_may_name_files_of_others_are_not_reported() -> None:
    owners = _owners()
    assert (
        _shown(owners, Sample(NOTE, START, {"text": "library /home/other/x.so attached", "pid": OTHERS}))
        == []
    )
    (shown,) = _shown(owners, Sample(PROBLEM, START, {"text": "/home/other/x.so cannot be probed"}))
    assert isinstance(shown, Sample)
    assert "home" not in str(shown.data)
    (shown,) = _shown(owners, Sample(PROBLEM, START, {"text": "no GPU figures"}))
    assert isinstance(shown, Sample)
    assert shown.data == {"text": "no GPU figures"}


def test_who_had_the_cpu_is_told_for_the_users_own_waits_only() -> None:
    owners = _owners()
    while_mine_waited = made.event(Kind.OCCUPANT, START + 90, pid=77, tid=77, duration=30, cpu=1)
    later = made.event(Kind.OCCUPANT, START + 300, pid=77, tid=77, duration=30, cpu=1)
    elsewhere = made.event(Kind.OCCUPANT, START + 90, pid=77, tid=77, duration=30, cpu=2)
    mine = made.off(START + 100, 0, 50, pid=MINE, tid=MINE, cpu=1, queue_cpu=1)
    others = made.off(START + 310, 0, 50, pid=OTHERS, tid=OTHERS, cpu=1, queue_cpu=1)
    (shown,) = _shown(owners, join([while_mine_waited, elsewhere, mine, later, others]))
    assert not isinstance(shown, Sample)
    assert shown["t_end"].tolist() == [START + 90, START + 100]


def test_a_number_that_goes_to_another_user_shows_nothing_of_the_tick_in_which_it_did() -> None:
    owners = _owners()
    new = Sample(PROCESS, START, {"pid": OTHERS, "uid": ME, "name": "n", "start_ns": 9})
    calls = _numbered((OTHERS, 0, 1))
    assert [item for item in _shown(owners, new, calls) if not isinstance(item, Sample)] == []
    owners.bury()
    (shown,) = _shown(owners, _numbered((OTHERS, 0, 2)), Sample(MARK, START, {}))[:1]
    assert not isinstance(shown, Sample)
    end = made.event(Kind.EXIT, START + 9, pid=OTHERS, tid=OTHERS, flags=1, seq=3)
    _shown(owners, end)
    owners.bury()
    assert owners.of(OTHERS) != ME


def test_calls_from_before_are_the_users_own() -> None:
    from gputop.analysis.evidence.gatherer import records_before, sample_of

    carried = sample_of(_numbered((MINE, 0, 1), (OTHERS, 0, 2)), [MINE, OTHERS], START)
    (shown,) = _shown(_owners(), carried)
    assert isinstance(shown, Sample)
    assert shown.kind == CARRIED
    records, complete = records_before(shown.data)
    assert np.unique(records["pid"]).tolist() == [MINE]
    assert complete == {MINE}


def test_ranges_are_shown_to_their_user_and_nothing_of_others() -> None:
    rows = unknown_rows(2)
    rows["pid"], rows["what"], rows["name"] = [MINE, OTHERS], 1, [2, 3]
    (sample,) = activity_samples(rows, ["", "range", "my epoch", "secret"], START)
    view = UserView(ME, _owners())
    (shown,) = view.sample(sample)
    found, texts = activity_rows(shown.data)
    assert [texts[row["name"]] for row in found] == ["my epoch"]
    assert "secret" not in texts
    (told,) = view.sample(Sample(MARK, START, {"number": 1, "activities": [2, START]}))
    assert told.data == {"number": 1}, "how many there were of all users says nothing of what is missing here"
