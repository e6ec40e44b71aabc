"""The timeline in blocks of colour: one meaning a sign, an axis that ends now, a moment for each column."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gputop.analysis.answer.picture import (
    ASSUMED,
    BLOCKED,
    BUSY,
    CALL_WORDS,
    COLUMN_NS,
    FAMILIES,
    GONE,
    GPU_ROWS,
    MARK_ROWS,
    MOST_RANGES,
    OTHER_RANGES,
    PRESUMED,
    PROVED,
    QUEUED,
    RUNNING,
    STATE_ROWS,
    WHOLE,
    Lanes,
    RangeLane,
    ThreadLane,
)
from gputop.analysis.evidence.blocking import Wait
from gputop.analysis.lanes import joined
from gputop.playback.feed import Explained
from gputop.ui.model.look import ASCII, UNICODE, Line, line_width, plain
from gputop.ui.model.time.blocklanes import (
    Look,
    Sign,
    call_signs,
    gpu_signs,
    idle_range,
    legend,
    range_signs,
    state_signs,
)
from gputop.ui.model.time.lanehistory import LaneHistory
from gputop.ui.model.time.timeblocks import Picture, Subject, TimeBlocks
from tests import each_recording
from tests import fake_reports as why
from tests import told_recordings as recordings

END = 100 * why.S
MAIN = Subject(4242, "python")
COLOURS, LETTERS, PLAIN = Look(UNICODE), Look(UNICODE, letters=True), Look(ASCII)
EVERY = (COLOURS, LETTERS, PLAIN)


def blocks(lanes: Lanes) -> TimeBlocks:
    made = TimeBlocks()
    made.append(Explained(None, END, why.S, lanes=lanes))
    return made


def picture(
    made: TimeBlocks, look: Look = COLOURS, width: int = 132, height: int = 30, now: int = END
) -> Picture:
    return made.picture(width, height, [MAIN], now, look)


def lanes_of(shown: Picture) -> dict[str, str]:
    """The lanes by their label."""
    lines = [plain(line) for line in shown.lines]
    return {
        line[:18].strip() or "axis": line[18:-14] for line in lines if line[:2] != " " * 2 or "its" in line
    }


def tokens_of(line: Line) -> list[str]:
    """The token of each column."""
    return [token for text, token in line for _ in text]


def every_sign(look: Look) -> list[Sign]:
    """All that a lane may show: one cell for each row of each kind of lane, none known, none seen."""
    signs: list[Sign] = []
    for rows, make in ((GPU_ROWS, gpu_signs), (STATE_ROWS, state_signs), (len(CALL_WORDS), call_signs)):
        shares = np.concatenate([np.eye(rows) * WHOLE, np.zeros((rows, 2))], axis=1).astype(np.int64)
        known = np.ones(rows + 2, np.int64)
        known[-1] = 0
        signs += make(shares, known, look)
    rows = np.eye(MOST_RANGES, MOST_RANGES + 2).astype(np.int64) * WHOLE
    known = np.array([1] * (MOST_RANGES + 1) + [0])
    names = [*(f"step/part {place}" for place in range(MOST_RANGES - 1)), OTHER_RANGES]
    return signs + range_signs(rows, known, names, look)


@pytest.mark.parametrize("look", EVERY)
def test_a_sign_in_its_colour_has_one_meaning(look: Look) -> None:
    meanings: dict[tuple[str, str], set[str]] = {}
    for sign in every_sign(look):
        meanings.setdefault((sign.glyph, sign.token), set()).add(sign.word.partition(",")[0].rstrip("s"))
    for (glyph, token), words in meanings.items():
        same = {word.replace("launche", "launch") for word in words}
        assert len(same) == 1, (glyph, token, words)


@pytest.mark.parametrize("look", [LETTERS, PLAIN])
def test_without_colours_a_sign_alone_has_one_meaning(look: Look) -> None:
    meanings: dict[str, set[str]] = {}
    for sign in every_sign(look):
        word = sign.word.partition(",")[0].rstrip("s").replace("launche", "launch")
        meanings.setdefault(sign.glyph, set()).add(word)
    assert {glyph: words for glyph, words in meanings.items() if len(words) > 1} == {}


def test_with_colours_no_cause_is_a_letter_and_each_has_its_own_colour() -> None:
    causes = [sign for sign in every_sign(COLOURS) if sign.token.startswith("cause.")]
    assert {sign.glyph for sign in causes} == {"█", "▒"}
    assert {sign.token for sign in causes} == {f"cause.{family.letter}" for family in FAMILIES}


@pytest.mark.parametrize("look", EVERY)
def test_every_cell_has_a_sign_and_the_legend_names_each(look: Look) -> None:
    signs = every_sign(look)
    assert all(sign.glyph.strip() and sign.word for sign in signs)
    told = {(entry[0][0], entry[0][1]) for entry in legend(signs)}
    assert told == {(sign.glyph, sign.token) for sign in signs}


def test_a_gpu_is_busy_idle_by_cause_estimated_or_not_known() -> None:
    shown = picture(blocks(why.lanes()))
    assert lanes_of(shown)["GPU 0"] == "░" * 20 + "█" * 40 + "▒" * 20 + "▓" * 20
    tokens = tokens_of(shown.lines[0])[18:118:20]
    assert tokens == ["unknown", "busy", "cause.S", "cause.S", "busy"]
    assert lanes_of(picture(blocks(why.lanes()), LETTERS))["GPU 0"][40:80] == "S" * 20 + "s" * 20


def test_a_thread_is_on_a_cpu_waits_for_one_is_blocked_or_has_ended() -> None:
    half = 100
    filled = ((RUNNING, 0, 50), (QUEUED, 50, half), (BLOCKED + Wait.LOCK, half, 120),
              (BLOCKED + Wait.SLEEP, 120, 160), (GONE, 160, 200))  # fmt: skip
    thread = ThreadLane(4242, 4242, why.shares(STATE_ROWS, 200, *filled), why.thread_lane().calls)
    lanes = replace(why.lanes(), threads=(thread,))
    wanted = "█" * 25 + "P" * 25 + "L" * 10 + "▂" * 20 + "×" * 20
    assert lanes_of(picture(blocks(lanes), LETTERS))["4242 python"] == wanted


def test_a_lane_below_a_thread_has_its_ranges_by_number_and_the_legend_their_names() -> None:
    shares = why.shares(2, 200, (0, 0, 100), (1, 150, 200))
    lane = RangeLane(4242, 4242, ("epoch 1/step #/forward/attention/softmax", "log"), shares)
    made = blocks(replace(why.lanes(), ranges=(lane,)))
    for look, none in ((COLOURS, "┄"), (PLAIN, "'")):
        shown = picture(made, look)
        assert lanes_of(shown)["its ranges"] == "1" * 50 + none * 25 + "2" * 25
        text = "\n".join(plain(line) for line in shown.lines)
        assert "1 attention/softmax" in text
        assert "2 log" in text
        assert f"{none} no range" in text
        assert "ranges 75 %" in text
    assert "its ranges" not in lanes_of(picture(blocks(why.lanes())))


def test_a_name_of_a_range_keeps_its_number_and_those_that_have_none_are_together() -> None:
    history = LaneHistory()
    for window in range(3):
        names = (*(f"part {3 * window + place}" for place in range(3)), "always")
        filled = [(row, 5 * row, 5 * row + 5) for row in range(4)]
        lane = RangeLane(4242, 4242, names, why.shares(4, 20, *filled))
        history.append(Lanes(20 * window, 20, (), (), np.zeros((MARK_ROWS, 20), np.uint8), (lane,)))
    assert history.range_names(4242) == (
        "part 0", "part 1", "part 2", "always", "part 3", "part 4", "part 5", OTHER_RANGES,
    )  # fmt: skip
    shares, known = history.cells(("ranges", 4242), 0, 12, 5)
    assert known.tolist() == [5] * 12
    assert (shares.sum(axis=0) == 5 * WHOLE).all()
    assert shares.argmax(axis=0).tolist() == [0, 1, 2, 3, 4, 5, 6, 3, 7, 7, 7, 3]


def test_a_low_timeline_explains_its_colours_before_it_has_marks() -> None:
    """At 120x40 the lanes had five colours and no line that named them."""
    shown = [plain(line) for line in picture(blocks(why.lanes()), height=5).lines]
    assert "busy" in shown[-1]
    assert "now" in shown[-2]
    assert not any(line.startswith("marks") for line in shown)
    assert any(plain(line).startswith("marks") for line in picture(blocks(why.lanes()), height=6).lines)


def test_the_range_of_a_lane_goes_from_what_is_proved_to_what_is_not_known_to_be_work() -> None:
    shares = np.zeros((GPU_ROWS, 4), np.int64)
    shares[PROVED], shares[ASSUMED], shares[BUSY], shares[PRESUMED] = 25, 30, 100, 50  # of 255
    low, high = idle_range(shares, np.ones(4, np.int64)) or (0, 0)
    assert (low, high) == pytest.approx((25 / WHOLE, 105 / WHOLE))
    assert idle_range(shares, np.zeros(4, np.int64)) is None
    assert plain(picture(blocks(why.lanes())).lines[0]).endswith("idle 20–60 %")


@pytest.mark.parametrize("late_s", [0, 1, 5, 400])
def test_the_axis_ends_now_and_what_is_not_reported_yet_is_labelled(late_s: int) -> None:
    made = blocks(why.lanes())
    for zoom in range(3):
        shown = picture(made, now=END + late_s * why.S)
        axis = next(line for line in shown.lines if plain(line)[:18].strip() == "" and " now" in plain(line))
        assert plain(axis)[18:-14].endswith(" now")
        last = shown.view.first + shown.view.count * shown.view.group
        assert 0 <= last * COLUMN_NS - (END + late_s * why.S) < shown.view.group * COLUMN_NS
        lane = lanes_of(shown)["GPU 0"]
        assert " " not in lane
        untold = (last - shown.view.group) * COLUMN_NS >= END
        assert (lane[-1] == "·") == untold, zoom
        assert not untold or any("not explained yet" in plain(line) for line in shown.lines)
        made.zoom(1)


def test_between_two_explanations_the_lanes_move_on_with_every_frame() -> None:
    kept, before = blocks(why.lanes()), ""
    for tick in range(30):
        now = END + tick * why.S // 4
        lanes = lanes_of(picture(kept, now=now))
        assert lanes == lanes_of(picture(blocks(why.lanes()), now=now)), "as if it had been explained now"
        assert lanes["GPU 0"] != before
        before = lanes["GPU 0"]
    assert set(lanes_of(picture(kept, now=END + 60 * why.S))["GPU 0"]) == {"·"}


def test_each_column_knows_its_moment_and_what_is_beside_the_lanes_has_none() -> None:
    shown = picture(blocks(why.lanes()))
    assert shown.view.moment_ns(17) is None
    assert shown.view.moment_ns(118) is None
    moments = [shown.view.moment_ns(x) for x in range(18, 118)]
    assert moments == [END - 10 * why.S + (2 * cell + 1) * COLUMN_NS for cell in range(100)]
    assert [shown.view.cell_of(moment) for moment in moments if moment is not None] == list(range(100))


def test_a_short_session_has_all_of_the_width() -> None:
    shown = picture(blocks(why.lanes(columns=30)))  # 1.5 s in 100 columns
    assert (shown.view.count, shown.view.repeat) == (33, 3)
    assert lanes_of(shown)["GPU 0"].rstrip() == "·" * 9 + "░" * 18 + "█" * 36 + "▒" * 18 + "▓" * 18
    assert len({shown.view.moment_ns(x) for x in range(18, 21)}) == 1
    assert shown.view.moment_ns(18 + 98) == END - COLUMN_NS // 2
    axis = next(text for text in map(plain, shown.lines) if text.rstrip().endswith(" now"))
    assert len(axis.rstrip()) == 18 + 99


def test_a_finding_is_marked_where_a_click_would_go_to_it() -> None:
    made = blocks(why.lanes())
    made.chosen_ns = (END - why.S,)
    marks = lanes_of(picture(made))["marks"]
    at = marks.index("▾")
    moment = picture(made).view.moment_ns(18 + at)
    assert moment is not None
    assert abs(moment - made.chosen_ns[0]) <= COLUMN_NS


def test_a_cell_keeps_its_columns_as_time_goes_on() -> None:
    made = blocks(why.lanes())
    made.zoom(1)  # a minute
    views = [picture(made, now=END + step * COLUMN_NS).view for step in range(30)]
    assert len({view.first % view.group for view in views}) == 1
    assert all(second.first >= first.first for first, second in pairwise(views))


@pytest.mark.parametrize("name", each_recording.NAMES)
def test_recorded_timelines_fit_any_pane(name: str) -> None:
    explained = recordings.explained(name)
    assert explained.report is not None
    assert explained.report.steps is not None
    subject = Subject(explained.report.steps.tid, "python", (0,))
    made = TimeBlocks()
    made.append(explained)
    for width in (40, 80, 120, 250):
        for height in (1, 4, 8, 12):
            for look in EVERY:
                shown = made.picture(width, height, [subject], explained.end_ns, look)
                assert len(shown.lines) <= height
                assert {line_width(line) for line in shown.lines} == {width}
                assert look is not PLAIN or all(plain(line).isascii() for line in shown.lines)


def test_gpus_without_room_are_counted_and_those_of_the_selected_process_stay() -> None:
    lanes = why.lanes(gpus=8)
    shown = blocks(lanes).picture(120, 5, [replace(MAIN, gpus=(6, 7))], END, COLOURS)
    text = "\n".join(plain(line) for line in shown.lines)
    assert "GPU 6" in text
    assert "GPU 7" in text
    assert shown.hidden == 6


@pytest.mark.parametrize("ahead_s", [0.25, 1, 2, 4])
def test_cells_of_an_explanation_ahead_of_the_frame_are_drawn_when_they_come_into_sight(
    ahead_s: float,
) -> None:
    """Frames lag on a slow machine: then two seconds were dots, with the range of other seconds."""
    made, again, ahead_ns = blocks(why.lanes(END)), blocks(why.lanes(END)), int(ahead_s * why.S)
    picture(made, now=END - ahead_ns)
    for now in range(END - ahead_ns, END + 1, COLUMN_NS):
        shown = picture(made, now=now)
    assert [plain(line) for line in shown.lines] == [plain(line) for line in picture(again).lines]


def test_skipped_time_says_so_and_is_no_idle_time() -> None:
    """Looks that come late reach no farther back than their share of a CPU allows."""
    early, late = why.lanes(END - 3 * why.S, 100), why.lanes(END, 20)
    both = joined(early, late, early.first)
    assert both.columns == 160
    history = LaneHistory()
    history.append(both)
    ((label, _index),) = history.gpus
    shares, known = history.cells(("gpu", label), both.first, both.columns, 1)
    assert (known == [1] * 100 + [0] * 40 + [1] * 20).all()
    parts = [
        np.concatenate([lanes.gpus[0].shares.astype(np.int64) for lanes in (early, late)], axis=1),
        np.ones(120, np.int64),
    ]
    assert idle_range(shares, known) == idle_range(*parts)
    for look in EVERY:
        shown = picture(blocks(both), look)
        assert any("skipped: CPU budget" in plain(line) for line in shown.lines)
        lane = lanes_of(shown)[label]
        assert lane.strip(look.glyphs.dot).count(look.glyphs.dot) == 40 // shown.view.group
        whole = picture(blocks(joined(both, why.lanes(END), both.first)), look)
        assert not any("skipped" in plain(line) for line in whole.lines), "explained in full since"
