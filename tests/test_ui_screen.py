"""What a user does on the screen and what must then be seen, through Textual's pilot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gputop.engine.frame import Lost
from gputop.playback.feed import RecordingState
from gputop.ui.app import GputopApp
from gputop.ui.canvas import Canvas
from gputop.ui.model.actions import ACTIONS, actions_of
from gputop.ui.model.prompt import Prompt
from tests import fake_frames as fake
from tests.screen_support import feed_frame, running, text_of


def shown_pids(app: GputopApp) -> list[int]:
    """The pids of the process table from the top."""
    return [row.pid for row in app.presenter.panes.processes.rows]


async def test_the_cursor_stays_on_its_pid_when_the_sort_changes() -> None:
    async with running(fake.frame(processes=12)) as (app, _, pilot):
        await pilot.press("j", "j", "j")
        pid = app.presenter.panes.processes.selected
        before = shown_pids(app)
        await pilot.press("full_stop", "full_stop", "r")
        assert app.presenter.panes.processes.selected == pid
        assert shown_pids(app) != before
        assert f"Calls | Lines of {pid} " in text_of(app)


async def test_every_column_in_sight_can_be_sorted_by() -> None:
    async with running(fake.frame(processes=5), (200, 40)) as (app, _, pilot):
        table = app.presenter.panes.processes
        seen = set()
        for _ in table.columns:
            seen.add(table.sort_column.key)
            await pilot.press("full_stop")
        assert seen == {column.key for column in table.columns}


async def test_comma_goes_back_to_the_column_before() -> None:
    async with running(fake.frame()) as (app, _, pilot):
        await pilot.press("full_stop", "comma")
        assert app.presenter.panes.processes.sort_column.key == "calls"


async def test_a_click_on_a_heading_sorts_and_a_second_one_reverses() -> None:
    async with running(fake.frame(processes=6)) as (app, _, pilot):
        lines = text_of(app).splitlines()
        y = next(i for i, line in enumerate(lines) if "CALL/s" in line)
        x = lines[y].index("PID")
        await pilot.click(Canvas, offset=(x, y))
        assert shown_pids(app) == sorted(shown_pids(app))
        await pilot.click(Canvas, offset=(x, y))
        assert shown_pids(app) == sorted(shown_pids(app), reverse=True)


async def test_a_click_on_a_row_selects_it() -> None:
    async with running(fake.frame(processes=6)) as (app, _, pilot):
        lines = text_of(app).splitlines()
        y = next(i for i, line in enumerate(lines) if "CALL/s" in line) + 3
        await pilot.click(Canvas, offset=(20, y))
        assert app.presenter.panes.processes.selected == shown_pids(app)[2]


async def test_a_click_on_a_key_in_the_last_line_does_what_it_says() -> None:
    async with running(fake.frame(), (80, 24)) as (app, _, pilot):
        footer = text_of(app).splitlines()[-1]
        await pilot.click(Canvas, offset=(footer.index("help"), 23))
        assert app.presenter.overlay == "help"
        await pilot.click(Canvas, offset=(footer.index("quit"), 23))
        await pilot.click(Canvas, offset=(79, 23))
        assert not app.presenter.overlay
        assert app.return_value is None
        await pilot.click(Canvas, offset=(footer.index(" q "), 23))
        assert app.return_value == 0


async def test_pause_holds_the_frame_while_the_feed_goes_on() -> None:
    async with running(fake.frame(0)) as screen:
        app, _, pilot = screen
        await pilot.press("space")
        feed_frame(screen, fake.frame(48))
        assert app.presenter.frame is not None
        assert app.presenter.frame.number == 0
        assert "PAUSED" in text_of(app)
        assert "-00:12 behind live" in text_of(app)
        await pilot.press("L")
        assert app.presenter.frame.number == 48
        assert "LIVE" in text_of(app)


async def test_help_lists_every_action() -> None:
    for replay in (False, True):
        async with running(fake.frame(), (100, 99), replay=replay) as (app, _, pilot):
            await pilot.press("question_mark")
            text = " ".join(text_of(app).split())
            for action in actions_of("replay" if replay else "live"):
                assert action.help in text
                assert action.shown in text


async def test_q_closes_the_help_first_and_then_quits() -> None:
    async with running(fake.frame()) as (app, _, pilot):
        await pilot.press("question_mark", "q")
        assert not app.presenter.overlay
        await pilot.press("q")
        assert app.return_value == 0


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
        strips = [app.query_one(Canvas).render_line(y) for y in range(50)]
        assert {strip.cell_length for strip in strips} == {200}
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
        feed_frame(screen, fake.frame(1, lost=Lost(4_321, (("ring", 4_321),))))
        header = app.query_one(Canvas).lines[0]
        assert any("lost 4.3k" in text and token == "alert" for text, token in header)


async def test_no_gpu_is_a_sentence() -> None:
    async with running(fake.frame(gpus=0, driver="")) as (app, _, _):
        assert "No GPU shown: NVML could not be loaded" in text_of(app)
    problems = ("GPUTOP_ATTACH=magic: it can be multi or perf", "no GPU figures: no NVIDIA driver")
    async with running(fake.frame(gpus=0, driver="", problems=problems)) as (app, _, _):
        assert "No GPU shown: no NVIDIA driver" in text_of(app)


async def test_before_the_first_process_the_screen_says_what_to_type() -> None:
    async with running(fake.frame(processes=0), (80, 24)) as (app, _, _):
        assert "Waiting for a process that uses CUDA" in text_of(app)
        assert "gputop -- python train.py" in " ".join(text_of(app).split())


async def test_before_the_first_frame_nothing_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a picture of the screen is written there
    async with running(None, (80, 24)) as (app, _, pilot):
        for action in ACTIONS:
            if not action.name.startswith("quit"):
                await pilot.press(action.keys[0])
            if app.presenter.prompt is not None or len(app.screen_stack) > 1:
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
        assert "the probes died" in text_of(app)
        await pilot.press("j")
        assert "Processes" in text_of(app)


async def test_the_recording_badge_shows_file_size_and_time() -> None:
    async with running(fake.frame()) as (app, feed, _):
        feed.state = RecordingState("/tmp/session.msgpack", 3_250_000, 131.0)
        app.poll()
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


async def test_enter_leads_to_the_calls_and_to_the_histogram_of_one() -> None:
    async with running(fake.frame(), (80, 24)) as (app, _, pilot):
        await pilot.press("tab", "enter", "down", "z")
        assert app.presenter.zoomed
        assert "Processes" not in text_of(app)
        row = app.presenter.panes.calls.selected_row
        assert row is not None
        await pilot.press("enter")
        text = text_of(app)
        for part in ("Call", row.api, "p99", "max", "UP TO"):
            assert part in text
        await pilot.press("down")
        assert row.api not in text_of(app), "the call below"
        await pilot.press("escape", "escape", "escape")
        assert app.presenter.focus == "processes"


async def test_a_frozen_order_does_not_move_and_says_so() -> None:
    async with running(fake.frame(0, processes=9)) as screen:
        app, _, pilot = screen
        await pilot.press("o")
        before = shown_pids(app)
        feed_frame(screen, fake.frame(40, processes=9))
        assert shown_pids(app) == before
        assert "frozen" in text_of(app)


async def test_nothing_is_painted_when_the_frame_is_the_same() -> None:
    async with running(fake.frame()) as (app, _, _):
        shown = app.query_one(Canvas).lines
        app.poll()
        assert app.query_one(Canvas).lines is shown


async def test_the_reason_of_a_missing_figure_is_in_the_zoomed_pane() -> None:
    frame = fake.frame(gpus=1)
    gpu = replace(
        frame.gpus[0], power_milliwatts=None, unavailable=(("power_milliwatts", "not supported here"),)
    )
    async with running(replace(frame, gpus=(gpu,))) as (app, _, pilot):
        assert "n/a" in text_of(app)
        await pilot.press("shift+tab", "z")
        assert "n/a: power / limit: not supported here" in text_of(app)


async def test_truncated_tables_say_how_much_is_out_of_sight() -> None:
    async with running(fake.frame(processes=30), (80, 24)) as (app, _, pilot):
        table = app.presenter.panes.processes
        title = next(line for line in text_of(app).splitlines() if "Processes 30" in line)
        rows = sum(f" {pid} " in text_of(app).split("Calls")[0] for pid in shown_pids(app)[1:]) + 1
        assert f"+{30 - rows} rows" in title
        await pilot.press("end")
        assert table.index == 29
        assert f"{30 - rows} above" in text_of(app)


async def test_the_wheel_scrolls_and_leaves_the_cursor_where_it_is() -> None:
    async with running(fake.frame(processes=60), (80, 24)) as (app, _, _):
        table = app.presenter.panes.processes
        selected = table.selected
        app.presenter.wheel(10, 8, 3)
        app.paint()
        assert table.top == 3
        assert table.selected == selected


async def test_the_started_process_is_selected_as_soon_as_it_appears() -> None:
    feed = fake.FakeFeed(fake.frame(processes=1))
    app = GputopApp(feed, rate_hz=0.001, selected_pid=4263)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        feed.newest = fake.frame(1, processes=5)
        app.poll()
        assert app.presenter.panes.processes.selected == 4263


async def test_while_a_question_is_open_keys_type_and_only_ctrl_c_quits() -> None:
    answers = list[str]()

    def answered(text: str) -> str:
        answers.append(text)
        return ""

    async with running(fake.frame(), (80, 24)) as (app, _, pilot):
        app.presenter.ask(Prompt("go to", "", "-30s or 50%"), answered)
        await pilot.press("5", "q", "backspace", "question_mark", "backspace", "0", "percent_sign")
        assert text_of(app).splitlines()[-1].startswith(" go to 50%")
        assert not app.presenter.overlay
        await pilot.press("enter")
        assert answers == ["50%"]
        assert "quit" in text_of(app).splitlines()[-1]
        app.presenter.ask(Prompt("go to"), answered)
        await pilot.press("ctrl+c")
        assert app.return_value == 0
