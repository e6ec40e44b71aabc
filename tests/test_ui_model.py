"""Layout, tables and formats without a terminal, over many sizes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.actions import parse

from gputop.engine.frame import ProcessRow, Share
from gputop.format import (
    clip,
    escape_text,
    format_bytes,
    format_count,
    format_hours,
    format_ns,
    format_percent,
    histogram_bars,
    sparkline,
    used_range,
    width_of,
)
from gputop.playback.feed import Explained
from gputop.ui.app import GputopApp
from gputop.ui.model.listing.process_table import process_table
from gputop.ui.model.look import UNICODE, plain
from gputop.ui.model.process.call_table import call_table, shares_text
from gputop.ui.model.view import READING_S, View
from gputop.ui.panes.key_line import Keys
from gputop.ui.panes.pane import Pane
from gputop.ui.panes.small_panes import Banner
from gputop.ui.run import NO_TERMINAL
from probes.proc import late_attach
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import Shown, feed_frame, running, text_of

NAMES = ("", "訓練プロセス", "e\u0301" * 9, "\x1b[31m", "👩‍🚀👩‍🚀", "x" * 30)
SIZES = ((40, 10), (57, 19), (80, 24), (100, 30), (120, 40), (163, 36), (200, 50), (300, 80))
KEYS = (
    *"wsz/gefEKr,.oymJRLtl!S12345F[]{}-= ?",
    "tab",
    "shift+tab",
    "enter",
    "escape",
    "down",
    "up",
    "pagedown",
    "end",
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
async def test_a_walk_of_keys_clicks_and_resizes_leaves_the_screen_whole(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random = Random(seed)
    ascii_only, replay = random.random() < 0.3, random.random() < 0.5
    name = random.choice(NAMES)
    frame = fake.frame(3, processes=random.randrange(0, 40), gpus=random.randrange(0, 9))
    rows = tuple(replace(row, name=name, command=name) for row in frame.processes)
    frame = replace(frame, processes=rows, problems=(name, name) if random.random() < 0.5 else ())
    found = [why.finding(f"C{number:02}", title=name or "x") for number in range(random.randrange(0, 9))]
    async with running(frame, random.choice(SIZES), replay=replay, ascii=ascii_only, title=name) as screen:
        app, feed, pilot = screen
        lanes = why.lanes(gpus=len(frame.gpus), columns=20 * len(found))
        feed.why = replace(why.explained(*found), lanes=lanes) if found else Explained()
        for step in range(30):
            choice = random.random()
            width, height = app.size
            if choice < 0.15:
                await pilot.resize_terminal(*random.choice(SIZES))
            elif choice < 0.35:
                await pilot.click(offset=(random.randrange(width), random.randrange(height - 1)))
            elif choice < 0.45:
                await feed_frame(screen, replace(frame, number=step + 10))
            else:
                await pilot.press(random.choice(KEYS))
            await pilot.pause()
            if app.return_value is not None:
                return
            lines = text_of(app).split("\n")
            width, height = app.size
            assert len(lines) == height
            assert {width_of(line) for line in lines} == {width}
            assert all(line.isprintable() for line in lines)
            assert not ascii_only or not [line for line in lines if not line.isascii()]


@pytest.mark.slow
async def test_panes_neither_overlap_nor_leave_the_screen() -> None:
    async with running(fake.frame(processes=9), SIZES[0]) as (app, feed, pilot):
        feed.why = replace(why.explained(why.finding()), lanes=why.lanes())
        app.poll()
        for key in ("down", "space", "l", "t", "z"):
            await pilot.press(key)
            for size in SIZES[::2]:
                await pilot.resize_terminal(*size)
                await pilot.pause()
                assert_apart(app)


def assert_apart(app: GputopApp) -> None:
    """No cell belongs to two panes, and each is on the screen."""
    covered: set[tuple[int, int]] = set()
    whole = app.screen.region
    for pane, (place, visible) in app.screen._compositor.visible_widgets.items():
        if isinstance(pane, Pane) and not isinstance(pane, Keys):  # the last line lies over what has no room
            region = place.intersection(visible)
            assert whole.contains_region(region)
            cells = {(x, y) for x in region.column_range for y in region.line_range}
            assert not cells & covered, pane
            covered |= cells


ROOTLESS = (
    "no eBPF without root: CUDA calls and preempting threads are not shown; to see them: "
    "sudo /home/someone/projects/.venv/bin/gputop --pid 12345"
)


def banner(width: int, height: int, *problems: str) -> str:
    """The lines of the banner, joined."""
    screen = Shown(fake.frame(3, problems=problems), size=(width, height))
    return told(screen)


def told(screen: Shown) -> str:
    """The same of a screen."""
    pane = screen.app.screen.query_one(Banner)
    assert pane.region.height == len(pane.shown_lines), "all of them are in sight"
    return " ".join(" ".join(map(plain, pane.shown_lines)).split())


@pytest.mark.slow
def test_the_banner_holds_what_is_missing_and_the_command_for_the_rest() -> None:
    one, two = (Shown(fake.frame(3, problems=(ROOTLESS, *more))) for more in ((), ("another",)))
    for size in ((80, 24), (80, 20), (120, 40), (200, 50)):
        one.text(*size)
        two.text(*size)
        assert told(one) == f"▲ {ROOTLESS}", f"all of it is there at {size}: no key is needed for more"
        assert told(two) == f"▲ {ROOTLESS} [!] all 2", size


def test_a_banner_for_which_there_is_no_room_is_cut_and_names_the_key() -> None:
    assert banner(80, 19, ROOTLESS).endswith("… [!] full text")
    assert banner(80, 24, "why " * 99).endswith("… [!] full text")
    assert banner(80, 24, "short") == "▲ short"


def test_processes_that_ran_before_have_one_line_and_soon_none() -> None:
    """They once had two lines of the screen all day: a thread that never wakes up is never known."""
    late = late_attach.merged([late_attach.sentence(pid) for pid in range(401, 413)])
    assert len(late) == 1
    early, after = (fake.frame(3, problems=late, start_ns=(100 - ago) * fake.S) for ago in (20, 61))
    for size in ((80, 24), (120, 40), (200, 50)):
        line = told(Shown(early, size=size))
        assert line.startswith("▲ 12 processes ran before gputop: their threads appear with"), size
        assert len(line) < size[0]
        screen = Shown(after, size=size)
        assert told(screen) == ""
        assert "1 problem [!]" in screen.text(*size) or size[0] == 80
        assert f"▲ {ROOTLESS}" in told(Shown(replace(early, problems=(*late, ROOTLESS)), size=size))
    page = Shown(after, "exclamation_mark").text(120, 40)
    assert "(401, 402, 403, 404, 405, 406 and 6 more)" in " ".join(page.split())


@pytest.mark.parametrize("count", [1, 2, 7])
def test_what_is_unknown_of_processes_that_ran_before_is_one_sentence(count: int) -> None:
    texts = [
        "lost the futex tracepoint",
        *(late_attach.sentence(pid) for pid in range(10, 10 + count)),
        "third",
    ]
    found = late_attach.merged(texts)
    assert [found[0], found[-1], len(found)] == [texts[0], "third", 3]
    assert found[1].startswith("process 10 ran" if count == 1 else f"{count} processes ran")
    assert late_attach.merged(found) == found
    assert late_attach.merged(["lost"]) == ["lost"]


@pytest.mark.slow
def test_a_sorted_column_is_sorted_in_every_frame() -> None:
    table = process_table()
    table.sort_by("time")
    chance = Random(7)
    rates = [float(chance.randrange(390, 490)) for _ in range(12)]
    for tick in range(200):
        rates = [rate * chance.uniform(0.93, 1.07) for rate in rates]
        rows = [
            fake.process(place, top_api_ns_per_second=1e6 * rate)
            for place, rate in enumerate(rates)
            if chance.random() < 0.9
        ]
        table.update(rows, tick * fake.S // 4)
        shown = [float(format_ns(row.top_api_ns_per_second).rstrip("ms")) for row in table.rows]
        assert shown == sorted(shown, reverse=True)


def test_percentages_of_four_digits_are_sorted_to_the_last() -> None:
    table = process_table()
    table.sort_by("cpu")
    table.update([fake.process(0, on_cpu_percent=1231.0), fake.process(1, on_cpu_percent=1234.0)], 0)
    assert [format_percent(row.on_cpu_percent) for row in table.rows] == ["1234", "1231"]


@pytest.mark.parametrize("turned", [False, True])
def test_processes_that_have_ended_stand_below_those_that_run(turned: bool) -> None:
    """Programs that live for a second each once pushed the ones that train out of sight."""
    table = process_table()
    if turned:
        table.reverse()
    gone = [fake.process(place, calls_per_second=301.0, exited_ns=fake.S) for place in range(40)]
    table.update([*gone, fake.process(40, calls_per_second=4.0), fake.process(41, calls_per_second=900.0)], 0)
    assert {row.exited_ns for row in table.rows[:2]} == {None}


def test_rows_that_read_alike_keep_their_places() -> None:
    table = process_table()
    one, two = fake.process(0, calls_per_second=484.2), fake.process(1, calls_per_second=484.1)
    table.update([one, two], 0)
    table.update([one, replace(two, calls_per_second=484.4)], fake.S)
    assert [row.pid for row in table.rows] == [one.pid, two.pid]


def test_rows_stay_where_they_are_while_somebody_reads_and_are_sorted_afterwards() -> None:
    now = [100.0]
    view = View()
    view.clock = lambda: now[0]
    first, second = fake.process(0, calls_per_second=100.0), fake.process(1, calls_per_second=50.0)
    frame = fake.frame(processes=1)

    def shown(tick: int, *rows: ProcessRow) -> list[int]:
        view.show(replace(frame, number=tick, time_ns=frame.time_ns + tick * fake.S // 4, processes=rows))
        return [row.pid for row in view.processes.rows]

    assert shown(0, first, second) == [first.pid, second.pid]
    view.touch()
    faster, new = replace(second, calls_per_second=900.0), fake.process(2, calls_per_second=999.0)
    now[0] += READING_S - 0.1
    assert shown(1, first, faster, new) == [first.pid, second.pid, new.pid]
    assert view.processes.unsorted
    assert not view.settle()
    now[0] += 0.2
    assert view.settle(), "also where no frame comes, as in a pause"
    assert [row.pid for row in view.processes.rows] == [new.pid, second.pid, first.pid]
    assert not view.processes.unsorted
    assert not view.settle()
    view.touch()
    view.processes.reverse()
    assert shown(2, first, faster, new) == [first.pid, second.pid, new.pid], "who sorts sees it at once"


@pytest.mark.slow
async def test_a_key_and_the_mouse_keep_the_rows_and_the_title_says_so() -> None:
    frame = fake.frame(processes=4, storm=False)
    turned = [replace(row, calls_per_second=1e6 * place) for place, row in enumerate(frame.processes, 1)]
    for use in ("key", "mouse"):
        async with running(frame) as screen:
            app, _feed, pilot = screen
            app.view.clock = lambda: 0.0
            before = [row.pid for row in app.view.processes.rows]
            await (pilot.press("down") if use == "key" else pilot.hover("#processes"))
            await feed_frame(screen, replace(frame, number=1, processes=tuple(turned)))
            assert [row.pid for row in app.view.processes.rows] == before
            assert "order kept" in text_of(app)
            app.view.clock = lambda: READING_S
            app.poll()
            await pilot.pause()
            assert [row.pid for row in app.view.processes.rows] == [row.pid for row in reversed(turned)]
            assert "order kept" not in text_of(app)


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


async def test_each_key_that_works_somewhere_does_one_thing_there_that_exists() -> None:
    async with running(fake.frame()) as (app, _, _pilot):
        for node in (app, app.screen, *app.screen.query("*")):
            for key, bindings in node._bindings.key_to_bindings.items():
                assert len(bindings) == 1, (node, key)
                target, name, _ = parse(bindings[0].action)
                owner = {"screen": app.screen, "app": app, "": node}[target]
                assert hasattr(owner, f"action_{name}") or hasattr(owner, f"_action_{name}"), (node, key)


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
    hours = (None, 0.001, 0.5, 2.5, 41.0, 1_204.4)
    assert [format_hours(n) for n in hours] == ["-", "3.60s", "30m", "2.5h", "41.0h", "1,204h"]


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
    code = "import gputop.commands.screen.text, gputop.ui.model.view, sys; sys.exit('textual' in sys.modules)"
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


async def test_header_and_banner_count_the_same_problems() -> None:
    """Without a GPU the banner leaves out what the pane of the GPUs says, and counted it out as well."""
    problems = ("no eBPF without root: CUDA calls are not shown", "no GPU figures: no NVIDIA driver", "third")
    async with running(fake.frame(gpus=0, driver="", problems=problems)) as (app, _, _):
        assert "3 problems [!]" in text_of(app)
        assert "[!] all 3" in text_of(app)


async def test_context_switches_are_normal_only_where_nobody_waits_for_a_cpu() -> None:
    """Below the rate of a storm they were called normal beside a verdict that a thread is starved of CPU."""
    frame = fake.frame(storm=False)
    calm = replace(frame, processes=tuple(replace(row, runnable_percent=19.0) for row in frame.processes))
    first = replace(calm.processes[0], runnable_percent=83.0)
    async with running(calm) as screen:
        assert "· context switches normal" in text_of(screen[0])
        await feed_frame(screen, replace(calm, number=1, processes=(first, *calm.processes[1:])))
        assert f"· {first.pid} {first.name} waits for a CPU 83 %" in text_of(screen[0])
        assert "normal" not in text_of(screen[0])


def test_who_had_next_to_nothing_of_a_cpu_is_not_named() -> None:
    shares = tuple(
        Share(pid, pid, name, 1, part)
        for pid, (name, part) in enumerate((("worker", 0.99), ("other", 0.001)))
    )
    assert shares_text(shares, UNICODE) == "worker 99%"
