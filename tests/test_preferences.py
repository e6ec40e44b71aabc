"""The preferences file: what it can say, what is reported of mistakes, and from where root reads it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.commands.cli import parse
from gputop.commands.screen.looks import draws_ascii, known_columns
from gputop.ui.model.config import MOST_BYTES, THEMES, Preferences, config_path, load
from gputop.ui.model.view import TOGGLED
from gputop.ui.terminal.palette import PALETTES
from tests import fake_frames as fake
from tests.screen_support import Shown

NOBODY = 65534
PAGE = Path(__file__).resolve().parents[1] / "docs" / "screen.md"
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="whose file it is matters to root")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that root trusts: nobody else can write to it or to those above it, as /tmp allows."""
    base = Path.home() if ROOT else Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(dir=base, prefix=".gputop-test-") as name:
        yield Path(name)


def read(path: Path) -> Preferences:
    """The preferences of a file."""
    return load(path, known_columns(), TOGGLED)


def written(folder: Path, text: str) -> Preferences:
    """The preferences of this text."""
    path = folder / "config.toml"
    path.write_text(text)
    return read(path)


def test_everything_that_can_be_said(folder: Path) -> None:
    made = written(
        folder,
        'rate = 2\ntheme = "light"\nglyphs = "ascii"\ntree = true\n'
        'group = "rank"\nhide = ["threads", "storms"]\n'
        '[columns]\nprocesses = ["pid", "name", "voluntary"]\ncalls = ["api", "layer"]\n',
    )
    assert not made.problems
    assert (made.rate_hz, made.theme, made.glyphs, made.tree) == (2.0, "light", "ascii", True)
    assert made.group == "rank"
    assert made.hide == ("threads", "storms")
    assert made.columns == {"processes": ("pid", "name", "voluntary"), "calls": ("api", "layer")}


def test_the_sparkline_of_a_process_is_chosen_like_any_other_column(folder: Path) -> None:
    made = written(folder, '[columns]\nprocesses = ["pid", "spark", "calls"]\n')
    assert not made.problems
    with Shown(fake.frame(), preferences=made) as screen:
        head = next(line for line in screen.text().splitlines() if " PID " in line)
    assert head.split()[1:] == ["PID", "1", "min", "▾CALLS/s", "│"]


def test_the_page_names_every_column_that_can_be_chosen() -> None:
    page = " ".join(PAGE.read_text().split())
    for table, keys in known_columns().items():
        assert f"of `{table}`: `{' '.join(keys)}`" in page


def test_without_a_file_nothing_is_preferred_and_nothing_said(folder: Path) -> None:
    assert read(folder / "none" / "config.toml") == Preferences(path=str(folder / "none" / "config.toml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rate = 0", "a number from 0.5 to 20"),
        ("rate = true", "a number from 0.5 to 20"),
        ("rate = nan", "a number from 0.5 to 20"),
        ('theme = "pink"', "it must be one of dark, light"),
        ("theme = []", "it must be one of dark, light"),
        ('glyphs = "emoji"', "it must be one of unicode, ascii"),
        ("tree = 1", "true or false"),
        ('hide = "gpus"', "it must be a list"),
        ('hide = ["gpu"]', "'gpu' is not one of gpus, processes"),
        ("hide = [[1]]", "[1] is not one of gpus"),
        ('hide = ["gpus", "processes", "calls", "threads"]', "at least one pane must stay"),
        ("columns = 1", "a table [columns]"),
        ('[columns]\nprocess = ["pid"]', "'process' is not one of processes, calls, threads"),
        ('[columns]\nprocesses = ["PID"]', "'PID' is not one of pid, name"),
        ("rate = " + "9" * 5000, "is not valid TOML"),
        ("rate = 0x" + "f" * 5000, "a number that is too long: it must be a number from"),
        ("hide = [0x" + "f" * 5000 + "]", "a number that is too long is not one of"),
        (f'theme = "{"x" * 5000}"', "x…: it must be one of dark"),
        ("colour = 1", "unknown setting 'colour'"),
        ("rate = ", "is not valid TOML"),
        ("x = " + "[" * 5_000, "is not valid TOML"),
        ("# \udcff", "cannot be read"),
        ("#" * (MOST_BYTES + 1), "not a regular file of at most 64 KiB"),
    ],
)
def test_a_mistake_is_one_sentence_and_costs_that_setting_alone(folder: Path, text: str, said: str) -> None:
    path = folder / "config.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    made = read(path)
    assert len(made.problems) == 1
    assert str(path) in made.problems[0]
    assert said in made.problems[0]
    usual = Preferences(path=str(path), problems=made.problems)
    assert made == usual


def test_a_mistake_leaves_the_other_settings(folder: Path) -> None:
    made = written(folder, 'rate = 99\ntheme = "dark"\nhide = ["gpus", "nothing"]')
    assert (made.rate_hz, made.theme, made.hide) == (None, "dark", ("gpus",))
    assert len(made.problems) == 2


def test_what_is_no_file_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "config.toml")
    assert "not a regular file" in read(folder / "config.toml").problems[0]


def test_where_the_file_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/gputop/config.toml")
    assert config_path({}) == Path("~/.config/gputop/config.toml").expanduser()
    assert config_path({"XDG_CONFIG_HOME": "here"}) == config_path({}), "a relative path is no place"
    monkeypatch.setenv("HOME", "~")
    assert config_path({}) is None, "nothing is read from the directory gputop happens to start in"


@needs_root
def test_root_reads_no_file_of_somebody_else(folder: Path) -> None:
    path = folder / "config.toml"
    path.write_text("rate = 2")
    os.chown(path, NOBODY, NOBODY)
    assert read(path).rate_hz is None
    assert f"user {NOBODY} owns it" in read(path).problems[0]


@needs_root
@pytest.mark.parametrize("part", ["file", "folder"])
def test_root_reads_nothing_that_others_can_write(folder: Path, part: str) -> None:
    path = folder / "gputop" / "config.toml"
    path.parent.mkdir(mode=0o755)
    path.write_text("rate = 2")
    assert read(path).rate_hz == 2.0
    (path if part == "file" else path.parent).chmod(0o775)
    assert read(path).rate_hz is None
    assert "others can write to it" in read(path).problems[0]


@needs_root
def test_root_follows_no_link(folder: Path) -> None:
    real = folder / "real"
    real.mkdir()
    (real / "config.toml").write_text("rate = 2")
    (folder / "link").symlink_to(real)
    assert read(folder / "link" / "config.toml").rate_hz is None
    (folder / "config.toml").symlink_to(real / "config.toml")
    assert read(folder / "config.toml").rate_hz is None


@needs_root
def test_under_sudo_the_caller_s_own_directory_is_passed_over_silently_while_it_holds_no_file() -> None:
    with tempfile.TemporaryDirectory() as name:  # in /tmp, where everybody can write
        assert not read(Path(name) / "gputop" / "config.toml").problems


def test_flags_come_before_preferences(folder: Path) -> None:
    _, options = parse(["--ascii"])
    assert draws_ascii(options, Preferences(glyphs="unicode"))
    _, options = parse([])
    assert draws_ascii(options, Preferences(glyphs="ascii"))


def test_every_theme_of_the_preferences_is_there() -> None:
    assert set(THEMES) == set(PALETTES)
