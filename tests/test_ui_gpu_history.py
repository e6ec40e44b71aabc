"""The graphs of the GPUs over the last minutes: what a dot stands for, how far they reach, and jumps."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from gputop.engine.frame import Frame, GpuRow
from gputop.ui.model.braille import graph
from gputop.ui.model.gpus.gpu_history import (
    KEPT_NS,
    LEAST_NS,
    SERIES,
    GpuHistory,
    detail_lines,
    shares,
    span_ns,
    span_text,
)
from gputop.ui.model.look import ASCII, UNICODE, line_width, plain
from gputop.ui.model.time.history_ring import BIN_NS, HistoryRing
from tests import fake_frames as fake
from tests import told_recordings as recordings
from tests.screen_support import running

S = fake.S
HOLD = S
KEPT = 100


def heights(lines: list[str]) -> list[int]:
    """How many dots high each value of a braille graph is, read back from the characters."""
    left, right = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)
    found: list[int] = []
    for column in range(len(lines[0])):
        codes = [ord(line[column]) - 0x2800 if line[column] not in " ·" else 0 for line in lines]
        found += [sum(bool(code & dot) for code in codes for dot in dots) for dots in (left, right)]
    return found


def frame(tick: int, gpus: int = 1, **changes: object) -> Frame:
    """A frame of GPUs that are ``tick`` percent busy, with the history that a replay has after a jump."""
    history = tuple(range(max(tick - 239, 0), tick + 1))
    made = tuple(
        replace(fake.gpu(n), utilization_percent=tick, utilization_history=history, **changes)
        for n in range(gpus)
    )
    return replace(fake.frame(), gpus=made, time_ns=100 * S + tick * BIN_NS, rate_hz=4.0)


# -- graphs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("height", [1, 2, 4])
def test_a_value_is_as_high_as_its_share_of_the_graph_and_never_less_than_a_dot(height: int) -> None:
    values = np.array([0.0, 0.01, 0.25, 0.26, 0.5, 0.75, 0.99, 1.0])
    lines = graph(values, height, UNICODE)
    dots = 4 * height
    assert heights(lines) == [max(1, int(np.ceil(value * dots))) for value in values]
    assert len(lines) == height
    assert {len(line) for line in lines} == {4}


def test_what_is_not_known_is_no_zero() -> None:
    nan = float("nan")
    assert graph(np.array([nan, nan, 0, 0, nan, 1.0]), 2, UNICODE) == ["  ⢸", "·⣀⢸"]
    assert graph(np.array([nan, nan, 0, 0, nan, 1.0]), 2, ASCII) == ["  #", "?.#"]


def test_without_unicode_a_column_is_as_high_as_the_higher_of_its_values() -> None:
    assert graph(np.array([0.0, 1.0, 0.0, 0.0, 0.5, 0.1]), 1, ASCII) == ["#.="]


# -- the ring -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_cells_are_the_means_of_what_was_reported_whatever_jumps_there_were(seed: int) -> None:
    chance = random.Random(seed)
    ring, said, now, last = HistoryRing(1, KEPT), {}, 1_000 * BIN_NS, -1
    for _ in range(200):
        jump = chance.random() < 0.1
        now += chance.randrange(-30, 30) * BIN_NS if jump else chance.randrange(0, 6) * BIN_NS
        value = chance.choice([None, chance.random()])
        first = last // BIN_NS + 1 if last >= 0 and 0 <= now - last <= HOLD else now // BIN_NS
        for bin_ in range(min(first, now // BIN_NS), now // BIN_NS + 1):
            said = {n: v for n, v in said.items() if n % KEPT != bin_ % KEPT} | {bin_: value}
        ring.put(now, [value], HOLD, last if last >= 0 else None)
        last = now
    drawn = ring.cells(now, 12, 2 * BIN_NS)[0]
    for cell, found in enumerate(drawn.tolist()):
        first = (now // (2 * BIN_NS) - 12 + 1 + cell) * 2
        known = [said.get(n) for n in (first, first + 1) if n <= now // BIN_NS]
        told = [value for value in known if value is not None]
        assert np.isnan(found) if not told else found == pytest.approx(sum(told) / len(told), rel=1e-6)


def test_nothing_is_drawn_of_what_comes_after_the_moment() -> None:
    ring = HistoryRing(1, KEPT)
    for tick in range(40):
        ring.put(tick * BIN_NS, [tick], HOLD)
    assert ring.cells(20 * BIN_NS, 4, BIN_NS)[0].tolist() == [17, 18, 19, 20]


def test_a_gap_in_what_was_seen_stays_a_gap() -> None:
    ring = HistoryRing(1, KEPT)
    ring.put(10 * BIN_NS, [1.0], HOLD)
    ring.put(30 * BIN_NS, [1.0], HOLD, 10 * BIN_NS)
    assert np.isnan(ring.cells(30 * BIN_NS, 20, BIN_NS)[0][:-1]).all()


# -- GPUs ---------------------------------------------------------------------------------------------


def test_two_minutes_have_room_at_any_width_and_more_in_a_wider_pane() -> None:
    assert all(span_ns(width, KEPT_NS) >= LEAST_NS for width in range(20, 300))
    spans = [span_ns(width, KEPT_NS) for width in range(80, 300)]
    assert spans == sorted(spans)
    assert spans[-1] > 2 * spans[0]
    assert span_text(75, KEPT_NS) == "last 2 min"
    assert span_text(115, KEPT_NS) == "last 3 min 20 s"


@pytest.mark.slow
def test_a_short_session_has_the_width_that_minutes_have_later() -> None:
    """Of the first seconds two minutes showed nothing but dots."""
    history, known, spans = GpuHistory(), [], []
    for tick in range(0, 600):
        now = replace(frame(tick % 100), time_ns=1_000 * S + tick * BIN_NS)
        history.append(replace(now, gpus=tuple(replace(gpu, utilization_history=()) for gpu in now.gpus)))
        if tick % 40 == 39:
            spans.append(span_text(75, history.known_ns(0, now.time_ns)))
            known.append(float(np.mean(~np.isnan(history.values(0, now.time_ns, 60)[0]))))
    assert list(dict.fromkeys(spans)) == ["last 30 s", "last 1 min", "last 2 min"]
    assert known[2] > 0.9
    assert min(known[3:]) > 0.45
    assert known[-1] == 1.0


def test_the_newest_value_stands_at_the_right_end() -> None:
    history = GpuHistory()
    for tick in range(101):
        history.append(frame(tick))
    values = history.values(0, frame(100).time_ns, 60)[0]
    assert values[-1] == pytest.approx(1.0)
    assert np.diff(values[~np.isnan(values)]).min() > 0


def test_a_jump_begins_with_the_utilisation_that_the_frame_carries() -> None:
    played, jumped = GpuHistory(), GpuHistory()
    for tick in range(90):
        played.append(frame(tick))
    jumped.append(frame(89))
    end = frame(89).time_ns
    np.testing.assert_allclose(jumped.values(0, end, 60)[0], played.values(0, end, 60)[0])
    assert np.isnan(jumped.values(0, end, 60)[1:, :-1]).all(), "of the others nothing is known before"


def test_the_same_seconds_played_again_change_nothing() -> None:
    history = GpuHistory()
    for tick in range(80):
        history.append(frame(tick))
    before = history.values(0, frame(79).time_ns, 60)
    for tick in (*range(40, 80), 3, 79):
        history.append(frame(tick))
    np.testing.assert_array_equal(history.values(0, frame(79).time_ns, 60), before)


def test_shares_are_parts_of_what_there_is() -> None:
    gpu = replace(
        fake.gpu(0), utilization_percent=26, memory_used_bytes=20 << 30, memory_total_bytes=80 << 30,
        power_milliwatts=350_000, power_limit_milliwatts=700_000, sm_active_percent=22.0,
        tensor_active_percent=None, dram_bandwidth_percent=9.0,
    )  # fmt: skip
    assert shares(gpu) == (0.26, 0.25, 0.5, 0.22, None, 0.09)
    assert shares(replace(gpu, power_limit_milliwatts=None))[2] is None


def known(**changes: object) -> GpuRow:
    gpm = {"sm_active_percent": 22.0, "tensor_active_percent": 11.0, "dram_bandwidth_percent": 9.0}
    return replace(fake.gpu(0), **(gpm | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [30, 69, 80, 120, 200])
@pytest.mark.parametrize("height", [1, 2, 3, 4, 7, 10, 30])
def test_the_pane_of_one_gpu_fits(width: int, height: int) -> None:
    history, now = GpuHistory(), replace(fake.frame(), gpus=(known(),))
    history.append(now)
    for glyphs in (UNICODE, ASCII):
        lines = detail_lines(history, now, now.gpus[0], width, height, glyphs)
        assert len(lines) <= height
        assert {line_width(line) for line in lines} == {width}
        assert glyphs is UNICODE or all(plain(line).isascii() for line in lines)


def test_a_high_pane_shows_every_figure_that_nvml_reports_and_none_that_it_does_not() -> None:
    history, now = GpuHistory(), replace(fake.frame(), gpus=(known(tensor_active_percent=None),))
    history.append(now)
    text = "\n".join(plain(line) for line in detail_lines(history, now, now.gpus[0], 80, 7, UNICODE))
    assert [one.label for one in SERIES if f" {one.label} " in text] == ["util", "mem", "power", "SM", "DRAM"]


def test_what_was_not_seen_is_faint_and_never_in_the_colour_of_work() -> None:
    history, now = GpuHistory(), replace(fake.frame(), gpus=(known(utilization_history=()),))
    history.append(now)
    for glyphs, dot in ((UNICODE, "·"), (ASCII, "?")):
        lines = detail_lines(history, now, now.gpus[0], 80, 7, glyphs)
        tokens = {token for line in lines for text, token in line if dot in text}
        assert tokens == {"faint"}


def test_a_lost_gpu_says_so_instead_of_a_graph() -> None:
    history, now = GpuHistory(), replace(fake.frame(), gpus=(known(lost="it has fallen off the bus"),))
    history.append(now)
    assert "fallen off" in plain(detail_lines(history, now, now.gpus[0], 80, 4, UNICODE)[0])


def test_a_recording_is_drawn_to_the_last_figure_that_nvml_reported() -> None:
    history, name = GpuHistory(), "redundant-to-device"
    for later in (-1, 0):
        history.append(recordings.frame(name, later))
    now = recordings.frame(name)
    values = history.values(0, now.time_ns, 60)
    for row, share in enumerate(shares(now.gpus[0])):
        assert share is None or values[row][-1] == pytest.approx(share, abs=0.05), SERIES[row].label


@pytest.mark.slow
@pytest.mark.parametrize("rate_hz", [1.0, 4.0])
async def test_a_pause_leaves_no_hole_in_any_graph(rate_hz: float) -> None:
    def at(tick: int) -> Frame:
        made = frame(
            tick % 100, memory_used_bytes=(tick + 1) << 28, power_milliwatts=1_000 * (tick + 1),
            sm_active_percent=float(tick % 100), tensor_active_percent=1.0, dram_bandwidth_percent=2.0,
        )  # fmt: skip
        return replace(made, number=tick, time_ns=100 * S + int(tick * S / rate_hz), rate_hz=rate_hz)

    async with running(at(0)) as screen:
        app, feed, pilot = screen
        for tick in range(1, 130):
            if tick == 10:
                await pilot.press("space")
            if tick == 60:  # another moment is shown meanwhile
                app.view.show(at(5))
            if tick == 120:
                await pilot.press("L")
            feed.newest = at(tick)
            app.poll()
        end = at(129)
        told = app.view.gpu_history.rings[0].cells(end.time_ns, int(120 / rate_hz), S)
        assert not np.isnan(told).any()
        power = told[SERIES.index(next(one for one in SERIES if one.label == "power"))]
        assert (np.diff(power) > 0).all(), "what was drawn at the time, not one figure for the whole pause"
        spark = app.view.process_history.spark(end.processes[0], end.time_ns, UNICODE)
        assert UNICODE.dot not in spark[-3:]
