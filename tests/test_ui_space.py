"""No line stands empty while rows are out of sight; a small screen has class, cause, line and fix."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.analysis.answer.picture import COLUMNS, OneStep
from gputop.analysis.chains.call_forms import TITLES, advice_of
from gputop.engine.calls.stack_table import Line
from gputop.engine.frame import Frame
from gputop.playback.feed import Explained
from gputop.ui.model.answer.why import why_of
from gputop.ui.model.answer.why_narrow import narrow_lines
from gputop.ui.model.look import ASCII, UNICODE, line_width, plain
from gputop.ui.model.room import shared
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import Shown

PLACE = "train.py:88"


def explained(gpus: int = 1) -> Explained:
    """A class, a cause with its line, a fix."""
    found = why.finding(
        title=TITLES["read"].format(often="every step"),
        advice=advice_of("read", size="391K", times="8.0 times a step"),
        line=Line("/home/user/train.py", 88, "forward"),
    )
    told = why.explained(found, diagnosis=why.diagnosis())
    return replace(told, lanes=why.lanes(gpus=gpus))


def settled(frame: Frame, told: Explained | None, size: tuple[int, int]) -> str:
    """The screen after some frames."""
    with Shown(frame, size=size) as screen:
        if told is not None:
            screen.feed.why = told
        for _ in range(3):
            screen.app.poll()
            screen.app.show()
            screen.text(*size)
        return screen.text(*size)


def rows_of(text: str, pane: str) -> int:
    """Rows of a table below its heading, which has this word."""
    below = text.partition(pane)[2].partition("\n")[2]
    box = below.partition("╰")[0].splitlines()
    return sum(bool(line.strip("│ ")) for line in box)


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", [(40, 10), (40, 11), (40, 12), (40, 20), (46, 30), (46, 60), (60, 24), (60, 12), (80, 12)]
)
def test_a_small_screen_shows_class_cause_line_and_fix_in_this_order(size: tuple[int, int]) -> None:
    text = settled(fake.frame(), explained(), size)
    parts = ("sync-bound", "device-to-host read", "C02", PLACE, "FIX")
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert text.index("FIX") < text.index("Processes")
    assert all(len(line) <= size[0] for line in text.splitlines())


@given(st.integers(20, 120), st.integers(3, 9), st.booleans(), st.booleans())
def test_the_answer_of_a_small_screen_fills_no_more_than_it_has(
    width: int, height: int, ascii_only: bool, calm: bool
) -> None:
    frame = fake.frame()
    told = why_of(why.explained() if calm else explained(), frame)
    glyphs = ASCII if ascii_only else UNICODE
    lines = narrow_lines(told, width, height, glyphs, focused=True)
    assert 0 < len(lines) <= height
    assert all(line_width(line) == width for line in lines)
    text = "\n".join(map(plain, lines))
    if not calm and height >= 4 and width >= 30:
        assert all(part in text for part in ("C02", PLACE, "FIX"))


CROWD = {(120, 40): (12, 1), (200, 50): (12, 3), (250, 70): (12, 7)}  # nvitop shows 11, 12, 12


@pytest.mark.slow
@pytest.mark.parametrize("size", CROWD)
def test_beside_eight_gpus_processes_and_calls_have_rows(size: tuple[int, int]) -> None:
    text = settled(fake.frame(gpus=8, processes=12), explained(8), size)
    processes, calls = CROWD[size]
    assert rows_of(text, "GMBW%" if size[0] >= 200 else "RUNTIME") >= processes
    assert rows_of(text, "HISTOGRAM") >= calls
    assert ("Timeline" in text) == (size != (120, 40)), "it is asked for with t there"


@pytest.mark.slow
@pytest.mark.parametrize(("size", "calls"), [((200, 50), 20), ((250, 70), 30)])
def test_an_empty_timeline_and_chain_leave_their_lines_to_the_calls(
    size: tuple[int, int], calls: int
) -> None:
    frame = fake.frame(processes=2)
    row = replace(frame.processes[0], calls=tuple(fake.call(i, api=f"cudaCall{i}") for i in range(40)))
    frame = replace(frame, processes=(row, *frame.processes[1:]))
    text = settled(frame, None, size)
    assert "Timeline" not in text
    assert "Chain" not in text
    assert text.count("cudaCall") >= calls
    known = settled(frame, explained(2), size)
    assert "Timeline" in known
    assert "Chain of 1" in known


@given(
    st.integers(8, 120), st.integers(0, 300), st.integers(2, 600), st.integers(0, 30), st.integers(0, 11),
    st.sampled_from([0, 7]),
)  # fmt: skip
def test_shared_lines_are_those_that_there_are(
    left: int, rows: int, details: int, lanes: int, links: int, chart: int
) -> None:
    room = shared(left, rows=rows, details=details, lanes=lanes, links=links, chart=chart)
    assert room.lanes <= lanes
    assert room.links <= links
    below = sum(part + 2 for part in (room.lanes, room.links) if part)
    if left >= 20:
        assert room.processes + 2 + below < left, "some lines are left for the calls"
    spare = left - below - room.processes - 2 - details - 2 - room.chart
    if spare > 0:  # nothing stands empty while something is cut
        assert room.lanes in (0, lanes)
        assert room.links in (0, links)
        assert (room.lanes, room.links) == (lanes, links) or spare < 14
        assert room.processes >= rows + 1


def test_at_250x70_lanes_of_gpus_get_the_lines_that_a_chart_leaves() -> None:
    """Four lines stood empty below six calls, since the chart needs seven, and five GPUs had no lane."""
    room = shared(49, rows=12, details=8, lanes=14, links=11, chart=7)
    assert room.processes == 13
    assert room.links == 11
    assert 49 - sum(part + 2 for part in (room.processes, room.lanes, room.links)) == 8 + 2


@pytest.mark.slow
def test_beside_a_step_each_of_eight_gpus_has_what_nvitop_and_btop_show() -> None:
    """At 120x40 the step hid memory share and fan, and a waiting process the network of the machine."""
    frame = fake.frame(gpus=8, processes=12, storm=False)
    first = replace(frame.processes[0], runnable_percent=83.0)
    gpus = tuple(replace(gpu, sm_active_percent=62.0, fan_percent=45) for gpu in frame.gpus)
    frame = replace(frame, processes=(first, *frame.processes[1:]), gpus=gpus)
    edges, none = np.arange(COLUMNS + 1) * 40_000, np.zeros((0, 2), np.int64)
    step = OneStep(first.pid, first.pid, 0, edges, 548, 10_000_000, (), (), none)
    told = replace(explained(8), steps=(step,))
    text = settled(frame, told, (120, 40))
    assert "step: median" in text
    heading = next(line for line in text.splitlines() if "UTIL" in line)
    assert {"UTIL", "SM%", "MEMORY", "MEM%", "POWER", "TEMP", "FAN%", "CLOCK"} <= set(
        heading.replace("│", " ").split()
    )
    machine = next(line for line in text.splitlines() if "waits for a CPU" in line)
    assert all(one in machine for one in ("CPU ", "load ", "mem ", "net "))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(120, 40), (200, 50), (250, 70)])
def test_rows_out_of_sight_are_counted_right_when_panes_get_their_room(size: tuple[int, int]) -> None:
    """The line beside the tabs kept the count from before the layout until the next frame."""
    frame = fake.frame(processes=2)
    row = replace(frame.processes[0], calls=tuple(fake.call(i, api=f"cudaCall{i}") for i in range(60)))
    frame = replace(frame, processes=(row, *frame.processes[1:]))
    with Shown(frame, size=size) as screen:
        for told in (None, explained(2)):
            if told is not None:
                screen.explain(told)
            text = screen.text(*size)
            hidden = 60 - text.count("cudaCall")
            assert f"+{hidden} rows" in text, told


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
def test_without_root_and_nvml_every_sentence_is_whole_and_nothing_is_claimed(size: tuple[int, int]) -> None:
    """At 120x40 the last line of the advice was cut above 20 empty lines, and empty facts had their names."""
    frame = replace(fake.frame(processes=0, gpus=0, driver=""), calls_observed=False, cuda="")
    text = settled(frame, None, size)
    assert "Waiting for a process that uses CUDA" in text
    assert "gputop --pid 1234" in " ".join(text.replace("│", " ").split())
    assert not any(claim in text for claim in ("compute mode", "persistence", "context switches normal"))


@pytest.mark.slow
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("size", [(40, 12), (80, 12), (60, 13), (80, 14), (50, 20), (80, 24)])
def test_a_small_screen_has_a_row_of_a_process_and_counts_the_others(
    size: tuple[int, int], replay: bool
) -> None:
    """In a replay at 80x12 there was a heading without rows, which said that one row was out of sight."""
    frame = fake.frame(gpus=8, processes=5)
    with Shown(frame, size=size, replay=replay) as screen:
        for _ in range(2):
            screen.explain(explained(8))
        text = screen.text(*size)
    title = next(line for line in text.splitlines() if "Processes 5" in line)
    below = text.partition(title)[2].splitlines()
    seen = sum(any(f" {row.pid} " in line for line in below) for row in frame.processes)
    hidden = re.search(r"\+(\d+) rows?", title)
    assert seen >= 1
    assert seen + (int(hidden[1]) if hidden else 0) == 5


@pytest.mark.slow
@pytest.mark.parametrize("size", [(40, 12), (40, 20), (60, 20), (80, 12), (80, 14), (100, 20)])
def test_gpus_without_a_line_are_counted_on_a_small_screen(size: tuple[int, int]) -> None:
    """At 60x20 four of eight GPUs, at 80x12 half of them were left out without a word."""
    frame = fake.frame(gpus=8, processes=12)
    text = settled(frame, explained(8), size)
    body = text.partition("FIX")[2].partition("Processes")[0]
    seen = len(set(re.findall(r"(\d)[ ▲] {0,2}\d+% ", body)))
    hidden = re.search(r"\+(\d) GPU", body)
    assert seen > 0
    assert seen + (int(hidden[1]) if hidden else 0) == 8
    assert re.search(r"Processes 12 .*\+\d+ rows", text), "and so are processes"
