"""What a user does on the screen and what must then be seen, through Textual's pilot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.events import MouseScrollDown
from textual.strip import Strip

from gputop.engine.frame import Lost
from gputop.format import width_of
from gputop.playback.feed import RecordingState
from gputop.ui.app import GputopApp
from gputop.ui.main_screen import MainScreen
from gputop.ui.model.config import Startup
from gputop.ui.model.table import needed
from gputop.ui.page_screens import HelpPage, Page
from gputop.ui.panes.dialogs import Question
from gputop.ui.panes.pane import Pane
from gputop.ui.panes.process_pane import Processes
from gputop.ui.panes.small_panes import Header
from tests import fake_frames as fake
from tests.screen_support import feed_frame, patient, running, text_of, tokens_of, until


def shown_pids(app: GputopApp) -> list[int]:
    """The pids of the process table from the top."""
    return [row.pid for row in app.view.processes.rows]


async def test_the_cursor_stays_on_its_pid_when_the_sort_changes() -> None:
    async with running(fake.frame(processes=12)) as (app, _, pilot):
        await pilot.press("j", "j", "j")
        pid = app.view.processes.selected
        before = shown_pids(app)
        await pilot.press("full_stop", "full_stop", "r")
        assert app.view.processes.selected == pid
        assert shown_pids(app) != before
        assert f" of {pid} " in text_of(app)


@pytest.mark.slow
async def test_every_column_in_sight_can_be_sorted_by() -> None:
    async with running(fake.frame(processes=5), (200, 40)) as (app, _, pilot):
        table = app.view.processes
        seen = set()
        for _ in table.columns:
            seen.add(table.sort_column.key)
            await pilot.press("full_stop")
        assert seen == {column.key for column in needed(table.columns, table.rows)} > {"rss", "run", "sm"}


async def test_comma_goes_back_to_the_column_before() -> None:
    async with running(fake.frame()) as (app, _, pilot):
        await pilot.press("full_stop", "comma")
        assert app.view.processes.sort_column.key == "calls"


async def test_a_click_on_a_heading_sorts_and_a_second_one_reverses() -> None:
    async with running(fake.frame(processes=6)) as (app, _, pilot):
        lines = text_of(app).splitlines()
        y = next(i for i, line in enumerate(lines) if "CALLS/s" in line)
        x = lines[y].index("PID")
        await pilot.click(offset=(x, y))
        assert shown_pids(app) == sorted(shown_pids(app))
        await pilot.click(offset=(x, y))
        assert shown_pids(app) == sorted(shown_pids(app), reverse=True)


async def test_a_click_on_a_row_selects_it() -> None:
    async with running(fake.frame(processes=6)) as (app, _, pilot):
        lines = text_of(app).splitlines()
        y = next(i for i, line in enumerate(lines) if "CALLS/s" in line) + 3
        await pilot.click(offset=(20, y))
        assert app.view.processes.selected == shown_pids(app)[2]


async def test_a_click_on_a_key_in_the_last_line_does_what_it_says() -> None:
    async with running(fake.frame(), (80, 24)) as (app, _, pilot):
        footer = text_of(app).splitlines()[-1]
        await pilot.click(offset=(footer.index("Help"), 23))
        assert isinstance(app.screen, HelpPage)
        await until(pilot, lambda: "q Back" in text_of(app), "the page")
        await pilot.click(offset=(text_of(app).splitlines()[-1].index("q Back"), 23))
        assert isinstance(app.screen, MainScreen)
        assert app.return_value is None
        await pilot.click(offset=(footer.index("q Quit"), 23))
        assert app.return_value == 0


async def test_pause_holds_the_frame_while_the_feed_goes_on() -> None:
    async with running(fake.frame(0)) as screen:
        app, _, pilot = screen
        await pilot.press("space")
        await feed_frame(screen, fake.frame(48))
        assert app.view.frame is not None
        assert app.view.frame.number == 0
        assert "PAUSED" in text_of(app)
        assert " 00:12 behind live" in text_of(app)
        await pilot.press("L")
        assert app.view.frame.number == 48
        assert "LIVE" in text_of(app)


@pytest.mark.slow
async def test_help_lists_every_key_that_works_and_what_it_does() -> None:
    for replay in (False, True):
        async with running(fake.frame(), (130, 150), replay=replay) as (app, _, pilot):
            keys = [
                (app.get_key_display(active.binding), active.binding.tooltip)
                for active in app.screen.active_bindings.values()
                if active.enabled and active.binding.tooltip
            ]
            assert len(keys) > 30
            await pilot.press("question_mark")
            text = " ".join(text_of(app).split())
            for _key, told in keys:
                assert " ".join(told.split()) in text
            assert ("start or stop recording" in text) is not replay


async def test_q_closes_the_help_first_and_then_quits() -> None:
    async with running(fake.frame()) as (app, _, pilot):
        await pilot.press("question_mark", "q")
        assert isinstance(app.screen, MainScreen)
        await pilot.press("q")
        assert app.return_value == 0


@pytest.mark.slow
async def test_ctrl_c_quits_even_from_the_help() -> None:
    async with running(fake.frame()) as (app, _, pilot):
        await pilot.press("question_mark", "ctrl+c")
        assert app.return_value == 0


async def test_a_tiny_terminal_says_so_and_recovers() -> None:
    async with running(fake.frame(), (80, 24)) as (app, _, pilot):
        await pilot.resize_terminal(20, 5)
        await pilot.pause()
        words = " ".join(text_of(app).split())
        assert words == "terminal too small (20x5): gputop needs 40x10"
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert "Processes" in text_of(app)
        assert len(text_of(app).splitlines()) == 40


@pytest.mark.parametrize(
    "name", ["[red]bold[/red]", "[/]", "\x1b[2J\x1b]0;owned\x07", "a\nb\tc", "\u202eevil", "\ud800"]
)
async def test_names_are_shown_as_they_are_and_never_interpreted(name: str) -> None:
    frame = fake.frame(processes=1)
    hostile = replace(frame.processes[0], name=name, command=name, top_api=name, user=name)
    gpu = replace(frame.gpus[0], name=name)
    frame = replace(frame, processes=(hostile,), gpus=(gpu,), problems=(name,))
    async with running(frame, (200, 50)) as (app, _, _):
        text = text_of(app)
        assert all(char.isprintable() for char in text.replace("\n", ""))
        assert {width_of(line) for line in text.splitlines()} == {200}
        if name.startswith("["):
            assert name in text


async def test_an_exited_process_stays_listed_and_is_marked() -> None:
    frame = fake.frame(processes=3, storm=False)
    gone = replace(frame.processes[1], exited_ns=frame.time_ns - 12 * fake.S)
    frame = replace(frame, processes=(frame.processes[0], gone, frame.processes[2]))
    async with running(frame, (200, 40)) as (app, _, _):
        line = next(line for line in text_of(app).splitlines() if f" {gone.pid} " in line)
        assert "✕ exited 12s" in line


async def test_a_storm_marks_its_row_and_names_who_had_the_cpu() -> None:
    for size in ((40, 10), (80, 24), (120, 40)):
        async with running(fake.frame(processes=3), size) as (app, _, _):
            lines = text_of(app).splitlines()
            assert any("4242" in line and "▲ storm" in line and "3.9k" in line for line in lines)
            assert any("stress-ng 61% · python 22%" in line for line in lines)


async def test_a_storm_is_marked_in_ascii_too() -> None:
    async with running(fake.frame(processes=3), ascii=True) as (app, _, _):
        assert "! storm" in text_of(app)
        assert text_of(app).isascii()


async def test_lost_events_turn_the_header_red() -> None:
    async with running(fake.frame()) as screen:
        app = screen[0]
        assert "lost 0" in text_of(app)
        await feed_frame(screen, fake.frame(1, lost=Lost(4_321, (("ring", 4_321),))))
        header = tokens_of(app.screen.query_one(Header))
        assert any("lost 4.3k" in text and token == "alert" for text, token in header)


@pytest.mark.slow
async def test_no_gpu_is_a_sentence() -> None:
    async with running(fake.frame(gpus=0, driver="")) as (app, _, _):
        assert "No GPU is shown: NVML could not be loaded" in text_of(app)
    problems = ("GPUTOP_ATTACH=magic: it can be multi, pairs or perf", "no GPU figures: no NVIDIA driver")
    async with running(fake.frame(gpus=0, driver="", problems=problems)) as (app, _, _):
        assert "No GPU is shown: no NVIDIA driver" in text_of(app)


async def test_before_the_first_process_the_screen_says_what_to_type() -> None:
    async with running(fake.frame(processes=0), (80, 24)) as (app, _, _):
        assert "Waiting for a process that uses CUDA" in text_of(app)
        assert "gputop -- python train.py" in " ".join(text_of(app).split())


@pytest.mark.slow
async def test_the_other_tables_ask_for_no_process_to_be_selected_where_there_is_none() -> None:
    async with running(fake.frame(processes=0), (120, 40)) as (app, _, _):
        assert "Select a process" not in text_of(app)
        assert text_of(app).count("Waiting for a process that uses CUDA") == 2, "processes and calls"


@pytest.mark.slow
async def test_before_the_first_frame_nothing_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a picture of the screen is written there
    async with running(None, (80, 24)) as (app, _, pilot):
        for key in "wsz/gefEKr,.oymJRLtlx! S12345F[]{}-=":
            await pilot.press(key)
            if not isinstance(app.screen, MainScreen):
                await pilot.press("escape")
        assert len(text_of(app).splitlines()) == 24


async def test_problems_are_a_banner_with_the_full_text_behind_a_key() -> None:
    problem = "futex tracepoint refused by the kernel " + "because of something long " * 9 + "END"
    async with running(fake.frame(problems=(problem, "second")), (80, 24)) as (app, _, pilot):
        banner = text_of(app).splitlines()[2:5]
        assert "futex tracepoint refused" in banner[0]
        assert "… " in banner[2]
        assert "[!] all 2" in banner[2]
        await pilot.press("exclamation_mark")
        assert " ".join(problem.split()) in " ".join(text_of(app).split())
        assert "second" in text_of(app)


async def test_a_dead_source_is_a_banner_and_the_screen_goes_on() -> None:
    async with running(fake.frame()) as (app, feed, pilot):
        feed.failed = "the probes died: ring buffer unmapped"
        app.poll()
        await pilot.pause()
        assert "the probes died" in text_of(app)
        await pilot.press("j")
        assert "Processes" in text_of(app)


async def test_the_recording_badge_shows_file_size_and_time() -> None:
    async with running(fake.frame()) as (app, feed, pilot):
        feed.state = RecordingState("/tmp/session.msgpack", 3_250_000, 131.0)
        app.poll()
        await pilot.pause()
        assert "REC session.msgpack 3.1M 02:11" in text_of(app).splitlines()[0]


async def test_replay_has_its_own_time_controls() -> None:
    async with running(fake.frame(), replay=True) as (app, feed, pilot):
        transport = feed.transport
        assert transport is not None
        assert "REPLAY" in text_of(app)
        assert "07:12/10:00" in text_of(app)
        await pilot.press("equals_sign", "equals_sign")
        assert transport.speed == 4
        for _ in range(12):
            await pilot.press("minus")
        assert transport.speed == 0.25
        await pilot.press("space")
        assert not transport.playing
        await pilot.press("right_square_bracket", "left_square_bracket", "left_square_bracket")
        assert transport.position_ns == 432 * fake.S - fake.S // 4
        await pilot.press("L")
        assert transport.position_ns == transport.end_ns


async def test_the_output_of_the_command_is_behind_a_key() -> None:
    async with running(fake.frame()) as (app, feed, pilot):
        feed.output = ["epoch 1 loss 0.93", "\x1b[31mred\x1b[0m"]
        app.poll()
        await pilot.press("l")
        assert "epoch 1 loss 0.93" in text_of(app)
        assert "\x1b" not in text_of(app)


@pytest.mark.slow
async def test_enter_leads_to_the_calls_and_to_the_histogram_of_one() -> None:
    async with running(fake.frame(), (80, 24)) as (app, _, pilot):
        await pilot.press("tab", "tab", "enter", "down", "z")
        assert app.screen.maximized is not None
        assert "Processes" not in text_of(app)
        row = app.view.calls.selected_row
        assert row is not None
        await pilot.press("enter")
        text = text_of(app)
        for part in ("Call", row.api, "p99", "max", "UP TO"):
            assert part in text
        await pilot.press("down")
        assert row.api not in text_of(app), "the call below"
        await pilot.press("escape", "escape", "escape")
        assert isinstance(app.focused, Processes)


async def test_a_frozen_order_does_not_move_and_says_so() -> None:
    async with running(fake.frame(0, processes=9)) as screen:
        app, _, pilot = screen
        await pilot.press("o")
        before = shown_pids(app)
        await feed_frame(screen, fake.frame(40, processes=9))
        assert shown_pids(app) == before
        assert "frozen" in text_of(app)


async def test_only_lines_that_changed_are_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[tuple[str, int]] = []
    render = Pane.render_line

    def noted(pane: Pane, y: int) -> Strip:
        painted.append((type(pane).__name__, y))
        return render(pane, y)

    async with running(fake.frame()) as screen:
        app, _, pilot = screen
        monkeypatch.setattr(Pane, "render_line", noted)
        app.poll()
        await pilot.pause()
        assert not painted, "the frame is the same"
        rows = fake.frame().processes
        changed = replace(rows[1], calls_per_second=rows[1].calls_per_second + 1_000)
        await feed_frame(screen, replace(fake.frame(), number=1, processes=(rows[0], changed, *rows[2:])))
        assert len(painted) == 1
        assert painted[0][0] == "Processes"


async def test_the_reason_of_a_missing_figure_is_in_the_zoomed_pane() -> None:
    frame = fake.frame(gpus=2)
    gpu = replace(
        frame.gpus[0], power_milliwatts=None, unavailable=(("power_milliwatts", "not supported here"),)
    )
    async with running(replace(frame, gpus=(gpu, frame.gpus[1]))) as (app, _, pilot):
        assert "n/a" in text_of(app)
        await pilot.press("tab", "z")
        assert "n/a: power / limit: not supported here" in text_of(app)


async def test_truncated_tables_say_how_much_is_out_of_sight() -> None:
    async with running(fake.frame(processes=30), (80, 24)) as (app, _, pilot):
        title = next(line for line in text_of(app).splitlines() if "Processes 30" in line)
        rows = sum(f" {pid} " in text_of(app).split("Calls")[0] for pid in shown_pids(app)[1:]) + 1
        assert f"+{30 - rows} rows" in title
        await pilot.press("end")
        assert app.view.processes.index == 29
        assert f"{30 - rows} above" in text_of(app)


async def test_the_wheel_scrolls_and_leaves_the_cursor_where_it_is() -> None:
    async with running(fake.frame(processes=60), (80, 24)) as (app, _, pilot):
        pane, table = app.screen.query_one(Processes), app.view.processes
        selected = table.selected
        await pilot._post_mouse_events([MouseScrollDown], offset=(10, 9))
        await pilot.pause(0.3)
        assert pane.scroll_y > 0
        assert table.selected == selected


async def test_the_started_process_is_selected_as_soon_as_it_appears() -> None:
    feed = fake.FakeFeed(fake.frame(processes=1))
    app = GputopApp(feed, Startup(rate_hz=0.001, selected_pid=4263))
    async with patient(app, (80, 24)) as pilot:
        await pilot.pause()
        feed.newest = fake.frame(1, processes=5)
        app.poll()
        assert app.view.processes.selected == 4263


@pytest.mark.slow
async def test_while_a_question_is_open_keys_type_and_only_ctrl_c_quits() -> None:
    answers = list[str]()

    def answered(text: str) -> str:
        answers.append(text)
        return ""

    async with running(fake.frame(), (80, 24)) as (app, _, pilot):
        app.push_screen(Question("go to", answered, hint="-30s or 50%"))
        await pilot.pause()
        await pilot.press("5", "q", "backspace", "question_mark", "backspace", "0", "percent_sign")
        lines = text_of(app).splitlines()
        assert lines[-3].strip() == "go to"
        assert lines[-2].strip() == "50%"
        assert "-30s or 50%" in lines[-1]
        assert not isinstance(app.screen_stack[-2], Page)
        await pilot.press("enter")
        assert answers == ["50%"]
        assert "Quit" in text_of(app).splitlines()[-1]
        app.push_screen(Question("go to", answered))
        await pilot.pause()
        await pilot.press("ctrl+c")
        assert app.return_value == 0
