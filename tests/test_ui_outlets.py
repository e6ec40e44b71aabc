"""What leads out of the screen: clipboard, files, signals, themes, the command palette."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.command import CommandList
from textual.pilot import Pilot

from gputop.engine.frame import Frame
from gputop.engine.frame_json import frame_to_json
from gputop.process.signals import OFFERED, Aim, SignalError, SignalTarget
from gputop.ui.app import GputopApp
from gputop.ui.exports import ExportError, save, stamped
from gputop.ui.main_screen import MainScreen
from gputop.ui.model.config import Preferences
from gputop.ui.terminal.palette import PALETTES
from tests import fake_frames as fake
from tests import fake_reports as told
from tests.json_page import assert_valid
from tests.screen_support import running as screen_running
from tests.screen_support import said, text_of, until
from tests.waiting import HANGS_S

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts for another user")


@asynccontextmanager
async def running(
    frame: Frame | None,
    size: tuple[int, int] = (120, 40),
    *,
    replay: bool = False,
    readonly: bool = False,
    **preferences: object,
) -> AsyncIterator[tuple[GputopApp, Pilot[int]]]:
    """The program on a fake frame."""
    preferred = Preferences(**preferences)  # type: ignore[arg-type]
    async with screen_running(frame, size, replay=replay, preferences=preferred, readonly=readonly) as made:
        yield made[0], made[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that may be ended."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def target(pid: int, seen_ns: int | None = None) -> SignalTarget:
    """A process that was seen, now or then."""
    return SignalTarget(pid, "sleep", "root", time.monotonic_ns() if seen_ns is None else seen_ns)


# -- files ----------------------------------------------------------------------------------------


async def test_x_writes_the_frame_that_is_shown_and_never_over_another_file(here: Path) -> None:
    frame = fake.frame(3)
    async with running(frame) as (app, pilot):
        app.feed.why = told.explained(told.finding())  # type: ignore[attr-defined]
        app.poll()
        await pilot.press("x", "x")
        assert said(app) == "saved: gputop-20251203-160232-2.json"
    first, second = sorted(here.iterdir(), key=lambda path: len(path.name))
    made = json.loads(first.read_text())
    assert_valid(made)
    assert made.pop("verdict")["schema"] == "gputop.explain/1"
    assert made == frame_to_json(frame)
    assert first.read_text() == second.read_text()
    assert first.stat().st_mode & 0o777 == 0o600


async def test_s_writes_the_screen_as_a_picture(here: Path) -> None:
    async with running(fake.frame(3)) as (app, pilot):
        await pilot.press("S")
        assert said(app) == "saved: gputop-20251203-160232.svg"
        await pilot.pause(0.2)
        assert said(app) in text_of(app)
    picture = (here / "gputop-20251203-160232.svg").read_text()
    assert picture.startswith("<svg")
    assert "Processes" in picture
    assert "url(http" not in picture.replace('"', ""), "who opens it fetches nothing"


@needs_root
def test_under_sudo_the_files_are_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        os.chown(name, NOBODY, NOBODY)
        monkeypatch.chdir(name)
        facts = os.stat(save("x.json", "{}"))
        monkeypatch.chdir("/")
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (NOBODY, NOBODY, 0o600)


@needs_root
def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(here: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(here)], check=True)
    try:
        os.chdir(here)
        with pytest.raises(ExportError, match=r"x.json cannot be written \(No space left on device\)"):
            save("x.json", "x" * 100_000)
        assert list(here.iterdir()) == []
    finally:
        os.chdir("/")
        subprocess.run(["umount", "--lazy", str(here)], check=True)


async def test_a_directory_that_cannot_be_written_is_one_sentence(here: Path) -> None:
    with tempfile.TemporaryDirectory() as gone:
        os.chdir(gone)
    async with running(fake.frame(3)) as (app, pilot):
        await pilot.press("x")
        assert "cannot be created here (No such file or directory)" in said(app)
    os.chdir(here)


def test_a_name_shows_the_moment_in_the_zone_of_the_recording() -> None:
    assert stamped(fake.WALL, 7_200, "json") == "gputop-20251203-160231.json"


# -- clipboard ------------------------------------------------------------------------------------


async def test_y_copies_the_row_and_the_command_s_name_stays_escaped() -> None:
    frame = fake.frame(processes=1)
    hostile = replace(frame.processes[0], name="\x1b]52;c;eA==\x07")
    async with running(replace(frame, processes=(hostile,))) as (app, pilot):
        await pilot.press("y")
        assert app.clipboard.startswith("PID 4242  NAME \\x1b]52")
        assert said(app).startswith("copied if the terminal allows it: PID 4242")


# -- signals --------------------------------------------------------------------------------------


def framed(pid: int) -> Frame:
    """A frame with one process, seen a moment ago."""
    frame = fake.frame(processes=1, storm=False)
    row = replace(frame.processes[0], pid=pid, start_ns=time.monotonic_ns())
    return replace(frame, processes=(row,))


async def test_a_signal_is_chosen_requested_and_then_sent(sleeper: subprocess.Popen[bytes]) -> None:
    async with running(framed(sleeper.pid)) as (app, pilot):
        await pilot.press("K")
        await until(pilot, lambda: "SIGTERM   terminate" in text_of(app), "the choice")
        await pilot.press("enter")
        await until(pilot, lambda: f"send SIGTERM to {sleeper.pid} python?" in text_of(app), "the question")
        assert sleeper.poll() is None
        shown = text_of(app)
        assert "n  send nothing" in shown
        assert "y  send SIGTERM" in shown
        line = next(line for line in shown.splitlines() if "y  send SIGTERM" in line)
        assert line.count("│") >= 2, "it has a frame"
        assert 5 < shown.splitlines().index(line) < len(shown.splitlines()) - 5, (
            "in the middle, not at the foot"
        )
        await pilot.press("y")
        outcomes = f"SIGTERM was sent to {sleeper.pid}", f"SIGTERM: {sleeper.pid} python has ended"
        await until(pilot, lambda: any(one in said(app) for one in outcomes), "the outcome")
        assert sleeper.wait(HANGS_S) == -signal.SIGTERM
        app.show_outcome()
        await until(pilot, lambda: "has ended" in said(app), "its end")


async def test_any_other_answer_sends_nothing(sleeper: subprocess.Popen[bytes]) -> None:
    async with running(framed(sleeper.pid)) as (app, pilot):
        await pilot.press("K", *"j" * (len(OFFERED) - 1), "enter")
        await until(pilot, lambda: "send SIGKILL" in text_of(app), "the question")
        for answer in ("enter", "n"):
            await pilot.press(answer)
            await until(pilot, lambda: said(app), "the outcome")
            assert said(app) == "nothing was sent"
            app.show_message("")
            await pilot.press("K", "enter")
            await until(pilot, lambda: "send SIGTERM" in text_of(app), "the question")
        await pilot.press("x", "escape", "escape")
        assert (sleeper.poll(), said(app)) == (None, "")


@pytest.mark.slow
async def test_no_signals_in_a_replay_or_when_the_screen_is_to_change_nothing() -> None:
    for options in ({"replay": True}, {"readonly": True}):
        async with running(framed(1), **options) as (app, pilot):  # type: ignore[arg-type]
            await pilot.press("K")
            assert isinstance(app.screen, MainScreen)
            await pilot.press("question_mark", "y")
            assert "signal" not in app.clipboard
            assert "missing data and its reasons, in full" in app.clipboard, "the whole page, not what fits"


def test_a_process_that_has_the_number_of_another_gets_none(sleeper: subprocess.Popen[bytes]) -> None:
    with pytest.raises(SignalError, match="belongs to another process"):
        Aim(target(sleeper.pid, seen_ns=time.monotonic_ns() - 3_600 * fake.S))
    with pytest.raises(SignalError, match="has ended"):
        Aim(target(1 << 22 | 1))
    with pytest.raises(SignalError, match="gputop itself"):
        Aim(target(os.getpid()))
    assert sleeper.poll() is None


def test_what_has_become_of_the_process_is_told(sleeper: subprocess.Popen[bytes]) -> None:
    aim = Aim(target(sleeper.pid))
    for number, told_then in (
        (signal.SIGSTOP, "is stopped"),
        (signal.SIGCONT, "still runs"),
        (signal.SIGKILL, "has ended"),
    ):
        aim.send(number)
        deadline = time.monotonic() + 60
        while told_then not in aim.outcome():
            assert time.monotonic() < deadline
            time.sleep(0.005)
    aim.close()


@needs_root
def test_only_signals_that_one_may_send() -> None:
    # who may not is asked in a process of its own: a thread cannot give its rights up alone
    code = (
        "import os, sys, time; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "from gputop.process.signals import OFFERED, Aim, SignalTarget\n"
        "try: Aim(SignalTarget(int(sys.argv[1]), 'init', 'root', time.monotonic_ns()))\n"
        "except Exception as error: print(error)"
    )
    script = f"import gputop.process.signals, pwd\n{code}"
    root = Path(__file__).parent.parent
    run = subprocess.run(
        [sys.executable, "-c", script, str(os.getpid())],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "belongs to root: only that user and root may send it signals" in run.stdout + run.stderr


# -- themes ---------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_t_goes_through_the_themes_and_says_how_to_keep_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    async with running(fake.frame(), path="/x/config.toml") as (app, pilot):
        seen = []
        for _ in PALETTES:
            await pilot.press("T")
            seen.append(app.palette.name)
        assert seen == ["light", "contrast", "terminal", "mono", "dark"]
        assert 'theme = "dark" in /x/config.toml' in said(app)


async def test_no_color_leaves_one_theme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    async with running(fake.frame(), theme="light") as (app, pilot):
        assert app.palette.name == "mono"
        await pilot.press("T")
        assert said(app) == "no other theme: NO_COLOR is set"
        assert app.palette.name == "mono"


# -- preferences on the screen --------------------------------------------------------------------


async def test_the_screen_starts_as_preferred() -> None:
    columns = {"processes": ("pid", "voluntary", "name")}
    async with running(fake.frame(), tree=True, hide=("gpus",), columns=columns) as (app, _):
        text = text_of(app)
        heading = next(line for line in text.splitlines() if "PID" in line)
        assert heading.replace("▴", "").strip("│").split() == ["PID", "VOL/s", "NAME"]
        assert "tree" in text
        assert "1 pane hidden" in text


async def test_mistakes_in_the_preferences_are_a_banner_beside_what_is_not_observed() -> None:
    problems = ("/x/config.toml: unknown setting 'colour'",)
    async with running(fake.frame(), problems=problems) as (app, pilot):
        assert "unknown setting 'colour'" in text_of(app).split("Processes")[0]
        await pilot.press("exclamation_mark")
        assert "unknown setting 'colour'" in text_of(app)


# -- the command palette --------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_palette_finds_an_action_by_its_name_and_does_it() -> None:
    async with running(fake.frame()) as (app, pilot):
        await pilot.press("ctrl+p")
        await pilot.pause()
        assert len(app.screen_stack) == 2
        await pilot.press(*"reverse")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await pilot.pause(0.1)
        assert len(app.screen_stack) == 1
        assert not app.view.processes.descending


async def test_an_action_of_several_keys_is_in_the_palette_once() -> None:
    async with running(fake.frame()) as (app, _):
        names = [command.title for command in app.get_system_commands(app.screen)]
        assert "back: unzoom, clear the filter, go to the processes, go to the verdict" in names
        assert len(names) == len(set(names))


@pytest.mark.slow
async def test_letters_typed_into_the_palette_do_not_act_and_escape_closes_it() -> None:
    async with running(fake.frame()) as (app, pilot):
        await pilot.press("ctrl+p", "q", "z", "question_mark")
        assert app.return_value is None
        assert len(app.screen_stack) == 2
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.screen_stack) == 1


@pytest.mark.slow
async def test_without_colours_the_cursor_of_the_palette_is_underlined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running(fake.frame()) as (app, pilot):
        await pilot.press("ctrl+p")
        await pilot.pause(0.3)
        await pilot.press("down")
        commands = app.screen.query_one(CommandList)
        assert commands.highlighted == 1
        lines = [commands.render_line(y) for y in range(4)]
        underlined = [any(segment.style and segment.style.underline for segment in line) for line in lines]
        assert underlined == [False, False, True, True]


async def test_a_recording_does_not_promise_output_that_it_cannot_have() -> None:
    async with screen_running(fake.frame(), replay=True) as (app, _, pilot):
        await pilot.press("l")
        assert "A recording does not hold the command's output" in text_of(app)
