"""Samples of activities: every number comes back, none is refused by gputop's own reader."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.activities import (
    FIELDS,
    MOST_GPUS,
    TABLE,
    TEXTS,
    activity_rows,
    activity_sample,
    activity_samples,
    unknown_rows,
)
from replay.coding import file_format as fmt

NUMBERS = st.integers(-(1 << 61), 1 << 61) | st.integers(-3, 300)


@pytest.mark.slow
@given(st.lists(st.tuples(*(NUMBERS for _ in FIELDS)), max_size=20), st.integers(0, 2))
def test_every_number_comes_back(rows: list[tuple[int, ...]], text: int) -> None:
    table = np.array([(*row, text, 0, 2) for row in rows], TABLE)
    table["call_begin"] = np.where(table["call_tid"] >= 0, table["call_begin"], -1)
    table["device"] = np.minimum(table["device"], MOST_GPUS - 1)
    sample = activity_sample(table, ["a", "b", "c"], 5)
    again, texts = activity_rows(fmt.unpack(fmt.pack(sample.data)))
    assert again[list(FIELDS)].tolist() == table[list(FIELDS)].tolist()
    told = [tuple(texts[place] for place in row) for row in again[list(TEXTS)].tolist()]
    assert told == [("abc"[text], "a", "c")] * len(rows)


def test_a_sample_of_an_older_gputop_is_read() -> None:
    lists: dict[str, Any] = {name: [1, 2] for name in FIELDS[:9]}
    rows, texts = activity_rows(lists | {"what": [0, 0], "name": [0, 1], "texts": ["", "gemm"]})
    assert rows["begin"].tolist() == [1, 2]
    assert rows["direction"].tolist() == [-1, -1]
    assert [texts[place] for place in rows["name"].tolist()] == ["", "gemm"]


def test_samples_of_long_names_are_small_enough_to_be_stored() -> None:
    rows = unknown_rows(3000)
    rows["name"] = np.arange(3000)
    names = [f"{number} " + "\U0001f600" * 3000 for number in range(3000)]
    samples = list(activity_samples(rows, names, 1))
    assert sum(len(activity_rows(sample.data)[0]) for sample in samples) == 3000
    assert max(len(fmt.pack(sample.data)) for sample in samples) <= fmt.MAX_SAMPLE_BYTES


@pytest.mark.parametrize("first", [0x80, 0x90, 0xDC, 0xDF])
def test_numbers_whose_bytes_look_like_arrays_are_no_arrays(first: int) -> None:
    """As a trace of all whose times have such a byte."""
    for data in (
        {"times": [first << 24 | first << 16 | first << 8 | first] * 50_000},
        {"times": bytes([first]) * 200_000, "text": "x" * 10},
        {"floats": [float.fromhex("0x1.08080808p+1")] * 50_000},
    ):
        assert fmt.unpack(fmt.pack(data)) == data


def test_arrays_that_would_fill_memory_are_refused_however_they_are_wrapped() -> None:
    for data in ([[]] * 200_000, {"a": [{}] * 200_000}, [[[]]] * 100_000, [[0, []]] * 120_000):
        with pytest.raises(ValueError, match="more arrays and maps"):
            fmt.unpack(fmt.pack(data))


def test_damaged_samples_are_refused_and_fill_no_memory() -> None:
    rows = unknown_rows(200)
    rows["begin"] = np.arange(200) * 1000
    rows["name"] = np.arange(200) % 3
    good = fmt.pack(activity_sample(rows, ["a", "b", "c"], 1).data)
    chance = random.Random(7)
    for _ in range(2000):
        broken = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            data = fmt.unpack(bytes(broken))
            table, _ = activity_rows(data)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
            continue
        assert len(table) <= len(broken) // 8
