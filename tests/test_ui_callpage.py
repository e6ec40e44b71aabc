"""The page of one call: a chart with an axis, percentiles on it, and the buckets as figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.engine.frame import CallRow
from gputop.ui.model.look import ASCII, UNICODE, Glyphs, line_width, plain
from gputop.ui.model.process.callpage import call_page, chart_lines
from tests import fake_frames as fake

US, MS = 1_000, 1_000_000


def row(*counts: tuple[int, int], **changes: object) -> CallRow:
    """A call with so many in each bucket: (power of two of ns, count)."""
    buckets = [0] * 40
    for power, count in counts:
        buckets[power] = count
    return replace(fake.call(1), histogram=tuple(buckets), count=sum(buckets), **changes)  # type: ignore[arg-type]


def chart(call: CallRow, width: int = 80, height: int = 6, glyphs: Glyphs = UNICODE) -> list[str]:
    """The chart's lines without the scale of counts and what is padded."""
    return [plain(line)[8:].rstrip() for line in chart_lines(call, width, height, glyphs)]


def test_bars_are_as_high_as_their_counts_over_an_axis_of_durations() -> None:
    lines = chart(row((10, 100), (11, 50), (13, 1)))
    assert lines[:4] == [
        "███████████",
        "███████████",
        "███████████ ███████████",
        "███████████ ███████████             ▁▁▁▁▁▁▁▁▁▁▁",
    ]
    assert lines[4].replace("─", " ").split() == ["1.0us", "2.0us", "4.1us", "8.2us"]
    assert plain(chart_lines(row((10, 100)), 80, 6, UNICODE)[0]).startswith("    100 ")


def test_percentiles_stand_below_their_place() -> None:
    call = row((10, 900), (15, 100), (20, 9), p50_ns=1_100, p95_ns=40 * US, p99_ns=50 * US, max_ns=MS + 1)
    axis, marks = chart(call, 110)[-2:]
    assert marks.startswith("▴p50 ")
    assert marks.index("▴p95 p99") - axis.index("32.8us") in range(1, 9)
    assert marks.index("▴max") in range(axis.index("1.0ms") - 10, len(axis))


def test_of_few_calls_a_percentile_is_marked_as_unsure() -> None:
    few = row((10, 3), p50_ns=1_100, p95_ns=1_200, p99_ns=1_300, max_ns=1_400)
    assert "p50 ~p95 ~p99 max" in chart(few, 40)[-1]
    text = "\n".join(plain(line) for line in call_page(few, fake.S, 80, UNICODE))
    assert "~: of 3 calls a percentile is one of the slowest" in text


def test_the_page_lists_every_bucket_with_its_share() -> None:
    lines = [plain(line) for line in call_page(row((10, 75), (12, 25), errors=2), 2 * fake.S, 100, UNICODE)]
    assert lines[0].startswith(" cudaMemcpyAsync  runtime  calls that ended in the last 2 s")
    assert "50/s" in lines[1]
    assert "errors 2" in lines[1]
    buckets = [line.split()[:5] for line in lines if line.count("%") == 1 and "UP TO" not in line]
    assert buckets == [
        ["1.0us", "2.0us", "75", "75", "75%"],
        ["2.0us", "4.1us", "0", "0", "75%"],
        ["4.1us", "8.2us", "25", "25", "100%"],
    ]


def test_no_call_and_a_call_that_has_not_returned_say_so() -> None:
    assert "no call is selected" in plain(call_page(None, 1, 80, UNICODE)[0])
    hanging = row(in_progress=1, in_progress_ns=3 * fake.S, p50_ns=0, p95_ns=0, p99_ns=0, max_ns=0)
    text = "\n".join(plain(line) for line in call_page(hanging, fake.S, 80, UNICODE))
    assert "no call ended in the last window" in text
    assert "in flight 1x 3.00s" in text
    assert "p50 -" in text


@pytest.mark.parametrize("name", ["[red]x[/red]", "\x1b[2J", "a\nb"])
def test_names_are_escaped(name: str) -> None:
    shown = plain(call_page(row((10, 1), api=name), fake.S, 80, ASCII)[0])
    assert shown.isprintable()
    assert shown.isascii()


@settings(max_examples=100, deadline=None)
@given(
    counts=st.dictionaries(st.integers(0, 39), st.integers(1, 10**9), max_size=40),
    width=st.integers(30, 300),
    height=st.integers(3, 20),
    p99=st.integers(0, 1 << 40),
)
def test_a_chart_fits_whatever_it_shows(counts: dict[int, int], width: int, height: int, p99: int) -> None:
    lines = chart_lines(row(*counts.items(), p99_ns=p99), width, height, ASCII)
    assert len(lines) <= height
    assert {line_width(line) for line in lines} == {width}
    assert all(plain(line).isascii() for line in lines)
