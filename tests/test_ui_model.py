"""Layout, tables and formats without a terminal, over many sizes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.format import (
    clip,
    escape_text,
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    histogram_bars,
    sparkline,
    used_range,
    width_of,
)
from gputop.playback.feed import Explained
from gputop.ui.app import GputopApp
from gputop.ui.model.actions import ACTIONS
from gputop.ui.model.details import call_table
from gputop.ui.model.layout import Needs, plan
from gputop.ui.model.look import line_width, plain
from gputop.ui.model.presenter import Presenter
from gputop.ui.model.processes import process_table
from gputop.ui.model.timebar import TransportView
from gputop.ui.run import NO_TERMINAL
from tests import fake_frames as fake
from tests import fake_reports as why

NAMES = st.text(max_size=30) | st.sampled_from(
    ["python", "訓練プロセス", "e\u0301" * 9, "\x1b[31m", "👩‍🚀👩‍🚀"]
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    width=st.integers(40, 300),
    height=st.integers(10, 80),
    processes=st.integers(0, 40),
    gpus=st.integers(0, 9),
    name=NAMES,
    keys=st.lists(st.sampled_from([action.name for action in ACTIONS]), max_size=6),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    findings=st.integers(0, 9),
)
def test_no_line_is_wider_than_the_terminal(
    width: int,
    height: int,
    processes: int,
    gpus: int,
    name: str,
    keys: list[str],
    flags: tuple[bool, bool, bool],
    findings: int,
) -> None:
    ascii_only, replay, problems = flags
    presenter = Presenter("replay" if replay else "live", ascii_only=ascii_only, title=name)
    presenter.transport = TransportView(True, 4, 5, 0, 9) if replay else None
    frame = fake.frame(3, processes=processes, gpus=gpus)
    rows = tuple(replace(row, name=name, command=name) for row in frame.processes)
    frame = replace(frame, processes=rows, problems=(name, name) if problems else ())
    presenter.show(frame)
    found = [why.finding(f"C{number:02}", title=name or "x") for number in range(findings)]
    explained = replace(why.explained(*found), lanes=why.lanes(gpus=gpus, columns=20 * findings))
    presenter.explain(explained if findings else Explained())
    for key in ("", *keys):
        presenter.act(key)
        lines = presenter.paint(width, height)
        assert len(lines) == height
        assert {line_width(line) for line in lines} == {width}
        assert not ascii_only or all(plain(line).isascii() for line in lines)


@settings(max_examples=300, deadline=None)
@given(
    width=st.integers(40, 300),
    height=st.integers(10, 80),
    needs=st.builds(
        Needs,
        gpu_lines=st.integers(1, 20),
        storms=st.integers(0, 20),
        processes=st.integers(0, 300),
        banner=st.integers(0, 9),
        transport=st.booleans(),
        log=st.booleans(),
        focus=st.sampled_from(["processes", "calls", "threads", "gpus", "timeline", "findings"]),
        detail=st.sampled_from(["calls", "threads"]),
        zoomed=st.booleans(),
        overlay=st.booleans(),
        timeline=st.integers(0, 30),
        explained=st.booleans(),
        threads=st.integers(0, 99),
    ),
)
def test_panes_neither_overlap_nor_leave_the_screen(width: int, height: int, needs: Needs) -> None:
    covered: set[tuple[int, int]] = set()
    for placed in plan(width, height, needs):
        assert placed.width > 0
        assert placed.height > 0
        cells = {(x, y) for x in range(placed.x, placed.x + placed.width)
                 for y in range(placed.y, placed.y + placed.height)}  # fmt: skip
        assert not cells & covered
        assert all(x < width and y < height for x, y in cells)
        covered |= cells
    assert {y for _, y in covered} == set(range(height))


ROOTLESS = (
    "no eBPF without root: CUDA calls and who preempts are not shown; for them: "
    "sudo /home/someone/projects/.venv/bin/gputop --pid 12345"
)


def banner(width: int, height: int, *problems: str) -> str:
    """The lines between the verdict and the GPUs, joined."""
    presenter = Presenter("live", ascii_only=False, title="")
    presenter.show(fake.frame(3, problems=problems))
    lines = [plain(line) for line in presenter.paint(width, height)]
    first_gpu = next(number for number, line in enumerate(lines) if "UTIL" in line or "GPUs" in line)
    return " ".join(" ".join(lines[2:first_gpu]).split())


@pytest.mark.parametrize("size", [(80, 24), (80, 20), (120, 40), (200, 50)])
def test_the_banner_holds_what_is_missing_and_the_command_for_the_rest(size: tuple[int, int]) -> None:
    assert banner(*size, ROOTLESS) == f"▲ {ROOTLESS}", "all of it is there: no key is needed for more"
    assert banner(*size, ROOTLESS, "another") == f"▲ {ROOTLESS} [!] all 2"


def test_a_banner_for_which_there_is_no_room_is_cut_and_names_the_key() -> None:
    assert banner(80, 19, ROOTLESS).endswith("… [!] full text")
    assert banner(80, 24, "why " * 99).endswith("… [!] full text")
    assert banner(80, 24, "short") == "▲ short"


def test_the_order_is_looked_at_once_a_second() -> None:
    table = process_table()
    slow, fast = fake.process(0, calls_per_second=10.0), fake.process(1, calls_per_second=99.0)
    table.update([slow, fast], 0)
    assert [row.pid for row in table.rows] == [fast.pid, slow.pid]
    faster = replace(slow, calls_per_second=500.0)
    table.update([faster, fast], fake.S // 2)
    assert [row.pid for row in table.rows] == [fast.pid, slow.pid]
    table.update([faster, fast], fake.S)
    assert [row.pid for row in table.rows] == [slow.pid, fast.pid]


def test_a_small_change_does_not_move_a_row() -> None:
    table = process_table()
    one, two = fake.process(0, calls_per_second=100.0), fake.process(1, calls_per_second=99.0)
    table.update([one, two], 0)
    table.update([one, replace(two, calls_per_second=104.0)], fake.S)
    assert [row.pid for row in table.rows] == [one.pid, two.pid]


def test_a_replay_that_jumps_back_is_sorted_anew() -> None:
    table = process_table()
    one, two = fake.process(0, calls_per_second=100.0), fake.process(1, calls_per_second=1.0)
    table.update([one, two], 90 * fake.S)
    table.update([one, replace(two, calls_per_second=500.0)], 10 * fake.S)
    assert table.rows[0].pid == two.pid


def test_the_cursor_goes_to_a_neighbour_when_its_row_disappears() -> None:
    table = process_table()
    rows = [fake.process(i, calls_per_second=100.0 - 20 * i) for i in range(4)]
    table.update(rows, 0)
    table.move(1)
    table.update([rows[0], rows[2], rows[3]], 1)
    assert table.selected == rows[2].pid


def test_calls_of_both_layers_are_separate_rows() -> None:
    table = call_table()
    table.update([fake.call(0), fake.call(0, nested=True), fake.call(0, layer="driver")], 0)
    assert len(table.rows) == 3


def test_each_key_belongs_to_one_action_and_each_action_can_be_done() -> None:
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))
    for action in ACTIONS:
        assert hasattr(GputopApp, f"do_{action.name}") or hasattr(Presenter, f"do_{action.name}")


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0ns"), (999, "999ns"), (5_000, "5.0us"), (41_000_000, "41.0ms"), (999_960, "1.0ms"),
     (1_250_000_000, "1.25s"), (61_500_000_000, "61.5s"), (1_020_000_000_000, "17m"), (9e18, "99999d"),
     (None, "-")],
)  # fmt: skip
def test_durations(ns: float | None, text: str) -> None:
    assert format_ns(ns) == text


@given(st.integers(0, 2**62) | st.floats(0, 1e18))
def test_every_number_fits_into_six_columns(value: float) -> None:
    assert len(format_ns(value)) <= 6
    assert len(format_count(value)) <= 5
    assert len(format_bytes(value)) <= 6
    assert len(format_percent(value)) <= 5


def test_numbers_read_as_people_write_them() -> None:
    assert [format_count(n) for n in (0, 3.25, 999, 8_100, 402_000, 1_200_000)] == [
        "0", "3.2", "999", "8.1k", "402k", "1.2M",
    ]  # fmt: skip
    assert [format_bytes(n) for n in (512, 1_536, 61 << 30)] == ["512B", "1.5K", "61.0G"]
    assert format_percent(0.04) == "0"


@given(st.text())
def test_escaped_text_is_harmless(text: str) -> None:
    escaped = escape_text(text)
    assert escaped.isprintable()
    assert "\x1b" not in escaped
    assert escape_text(text, ascii_only=True).isascii()
    for width in (0, 1, 2, 7):
        assert width_of(clip(escaped, width)) <= width


def test_sparks_and_histograms() -> None:
    assert sparkline([0, 50, 100, None], 6) == "  ▁▄▇·"
    assert used_range([[0, 0, 3, 0, 1, 0]]) == (2, 5)
    assert histogram_bars([0, 0, 8, 0, 1, 0], (2, 5), 10) == "▇ ▁"
    assert len(histogram_bars([1] * 40, (0, 40), 9)) <= 9


def test_text_and_models_start_without_textual() -> None:
    code = "import gputop.commands.text, gputop.ui.model.presenter, sys; sys.exit('textual' in sys.modules)"
    root = Path(__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_without_a_terminal_one_sentence_says_what_to_do() -> None:
    code = "from tests.fake_frames import FakeFeed; from gputop.ui.run import run_app"
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; sys.exit(run_app(FakeFeed()))"],
        cwd=root,
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", NO_TERMINAL + "\n")
