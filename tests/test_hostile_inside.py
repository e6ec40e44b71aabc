"""Programs that hand over anything: memory, time and text stay bounded, and the data of others stays."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.activities import MOST_GPUS
from probes.inside.intake import Inside
from probes.inside.messages import CLOCK, MOST_ROWS, ROW, InsideState, Message, What
from probes.inside.text_numbers import MOST_CHARACTERS, MOST_TEXTS, HandedTexts, TextNumbers
from probes.source import PROBLEM, Sample
from tests.handed_over import NOW, PID, message, moment, rows, told

SECOND = 1_000_000_000
EDGES = st.sampled_from([0, 1, 5, NOW - 1, NOW, NOW + 2 * SECOND, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
NUMBERS = st.sampled_from([0, 1, 7, MOST_GPUS - 1, MOST_GPUS, 2**31, 2**32 - 1])


def handed(inside: Inside, count: int, pid_of_it: int = PID, **columns: int | np.ndarray) -> None:
    """So many rows, in as many messages as they need."""
    table = np.zeros(count, ROW)
    for name, value in columns.items():
        table[name] = value
    for first in range(0, count, MOST_ROWS):
        part = table[first : first + MOST_ROWS]
        inside.hear(message(Message.ROWS, part.tobytes(), len(part), before=first, pid=pid_of_it))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "what": st.integers(0, 10),
                **dict.fromkeys(("begin", "end", "bytes"), EDGES),
                **dict.fromkeys(("device", "stream", "name", "thread", "graph", "detail"), NUMBERS),
            }
        ),
        max_size=6,
    ),
    st.lists(st.tuples(EDGES, EDGES, EDGES), max_size=3),
)
def test_rows_of_any_numbers_are_reported_as_they_can_be_or_counted_as_lost(
    given_rows: list[dict[str, int]], moments: list[tuple[int, int, int]]
) -> None:
    inside = Inside(lambda sample: None)
    for numbers in moments:
        inside.hear(message(Message.CLOCK, np.array([numbers], CLOCK).tobytes(), 1))
    inside.hear(rows(*given_rows))
    found = told(inside, last=True)
    for row in found:
        assert 0 < row["begin"] <= row["end"] <= NOW + SECOND
        assert row["device"] < MOST_GPUS
    kinds = [row for row in given_rows if row["what"] in range(What.KERNEL, What.INSTANT + 1)]
    lost = sum(inside.mark_counts()[:1]) - len(found)
    assert len(found) + lost >= len(kinds)


@pytest.mark.parametrize("what", [What.KERNEL, What.CALL])
def test_work_of_the_future_is_not_waited_for(what: What) -> None:
    inside = Inside(lambda sample: None)
    handed(inside, 500, what=what, begin=2**62, end=2**62 + 5)
    assert told(inside, NOW) == []
    assert inside.mark_counts() == [500, NOW]
    assert told(inside, last=True) == []


def test_a_gpu_that_no_recording_can_have_takes_no_other_rows_with_it() -> None:
    inside = Inside(lambda sample: None)
    at = {"what": What.KERNEL, "begin": NOW - 10, "end": NOW - 5}
    inside.hear(rows(at | {"device": 4_000_000_000}, at | {"device": 3}))
    assert [row["device"] for row in told(inside, last=True)] == [3]
    assert inside.mark_counts()[0] == 2


def test_a_program_that_starts_without_end_is_told_of_no_more() -> None:
    said: list[Sample] = []
    inside = Inside(said.append)
    for place in range(2_000):
        inside.hear(message(Message.STATE, b"y" * 4000, 4000, InsideState.REFUSED, pid=PID + place % 2))
    assert 0 < len(said) < 200
    assert max(len(str(one.data)) for one in said) < 500
    last = [one.data["text"] for one in said if one.kind == PROBLEM][-1]
    assert "goes on without" in last or "starts without" in last


def test_how_far_a_clock_is_off_stays_a_number_of_64_bits() -> None:
    inside = Inside(lambda sample: None)
    inside.hear(message(Message.CLOCK, np.array([(NOW, NOW, 2**64 - 1)], CLOCK).tobytes(), 1))
    inside.hear(rows({"what": What.KERNEL, "begin": NOW - 5, "end": NOW - 1}))
    (sample,) = [one for one in inside.at_mark(NOW, None, last=True) if "inside_error_ns" in one.data]
    assert sample.data["inside_error_ns"] < 1 << 62


@pytest.mark.slow
def test_more_rows_than_can_be_reported_of_are_counted() -> None:
    inside = Inside(lambda sample: None)
    for _ in range(2):
        handed(inside, 150_000, what=What.RANGE, begin=NOW - 5, end=NOW - 1)
    assert len(told(inside)) == 200_000
    assert inside.mark_counts()[0] >= 300_000


def test_names_without_end_of_one_program_leave_room_for_another() -> None:
    texts = TextNumbers({"kernel"})
    row = np.zeros(1, np.dtype([("what", "<i4"), ("name", "<i4"), ("detail", "<i4")]))
    for place in range(MOST_TEXTS + 5):
        texts.number(f"mine {place}")
    assert texts.number("another's") == 0
    row["name"] = texts.number("mine 7")
    texts.forget([row])
    assert texts.texts[int(row["name"][0])] == "mine 7"
    assert len(texts.texts) == 3
    assert texts.texts[texts.number("another's")] == "another's"
    assert len(texts.texts[texts.number("z" * 5_000)]) == MOST_CHARACTERS


def test_texts_of_all_programs_together_are_bounded() -> None:
    texts = HandedTexts()
    for pid in range(12):
        for number in range(2_000):
            texts.consume(pid, number, b"%d" % number + b"x" * 4_000)
    kept = [text for pid in range(12) for text in texts.of(pid).values()]
    assert sum(map(len, kept)) <= HandedTexts.BYTES_OF_ALL
    for pid in range(12):
        texts.drop(pid)
    texts.consume(99, 1, b"another's")
    assert texts.of(99) == {1: "another's"}


def test_forks_of_a_program_with_many_texts_share_its_room() -> None:
    texts = HandedTexts()
    for number in range(MOST_TEXTS):
        texts.consume(1, number, b"x")
    for child in range(2, 50):
        texts.inherit(child, 1)
    assert sum(len(texts.of(pid)) for pid in range(50)) <= HandedTexts.MOST_OF_ALL


@pytest.mark.slow
def test_moments_and_threads_without_end_are_forgotten() -> None:
    inside = Inside(lambda sample: None)
    tracemalloc.start()
    try:
        for place in range(20_000):
            inside.hear(moment(NOW - 30_000 + place))
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
        inside = Inside(lambda sample: None)
        sizes = []
        for turn in range(3):
            threads = np.arange(40_000) + 40_000 * turn
            handed(inside, 40_000, pid_of_it=7, what=What.RANGE, begin=1, end=2, thread=threads)
            assert sum(1 for _ in inside.at_mark(NOW, None))
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[2] - sizes[1] < 1 << 20
