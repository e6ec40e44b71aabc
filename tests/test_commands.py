"""The table of commands: what is added is listed, helped and run; words are guessed, completed, replayed."""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.commands import cli, progress
from gputop.commands.cli import parse
from gputop.commands.completion import SHELLS
from gputop.commands.overview import GROUPS, LIVE, TABLE, CommandRow, listing
from gputop.errors import CommandError, GputopError
from tests import inside
from tests.cli_support import assert_one_sentence, on_terminal, run
from tests.processes import with_variable
from tests.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "recordings" / "numpy-sync.msgpack"

THROWAWAY = """
from gputop.commands.command import Command
from gputop.process.stdio import put


def add_arguments(parser):
    parser.add_argument("--times", type=int, default=1, help="how often")


def run(options):
    put("hello" * options.times)
    return 7


COMMAND = Command(description="Say hello.", add_arguments=add_arguments, run=run)
"""


@pytest.fixture
def throwaway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command more: its file, and its row."""
    (tmp_path / "gputop_throwaway.py").write_text(THROWAWAY)
    monkeypatch.syspath_prepend(str(tmp_path))
    row = CommandRow("greet", "a word of greeting", "gputop_throwaway")
    monkeypatch.setitem(TABLE, "greet", row)
    monkeypatch.setitem(GROUPS, "politeness", (row,))


def typed(*words: str) -> int:
    """What gputop ends with."""
    return cli.run(words)


@pytest.mark.usefixtures("throwaway")
def test_a_command_is_added_by_its_file_and_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    for words, shown in (
        (("--help",), "gputop greet                  a word of greeting"),
        (("greet", "--help"), "--times"),
    ):
        with pytest.raises(SystemExit):
            typed(*words)
        assert shown in capsys.readouterr().out
    assert typed("greet", "--times", "2") == 7
    assert capsys.readouterr().out == "hellohello"
    assert typed("greet", "--frob") == 2
    assert "gputop greet --help" in capsys.readouterr().err
    assert "greet" in cli.whole_parser().format_help()


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


@pytest.mark.parametrize("columns", ["80", "250"])
def test_help_takes_80_columns_at_most(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = [
        each.format_help()
        for name in (LIVE, *TABLE)
        for each in parsers(cli.parser_of(name, cli.command_named(name)))
    ]
    assert len(shown) > len(TABLE) + 5, "those of gputop fleet as well"
    assert all(text.startswith("usage: gputop") for text in shown)
    assert [line for text in shown for line in text.splitlines() if len(line) > 80] == []


def test_a_default_that_the_help_names_is_the_default() -> None:
    named = 0
    for name in (LIVE, *TABLE):
        for parser in parsers(cli.parser_of(name, cli.command_named(name))):
            for action in parser._actions:
                shown = re.search(r"\((\d+(?:\.\d+)?)([MG]?)\)", action.help or "")
                default = parser.get_default(action.dest)
                if shown and isinstance(default, int | float):
                    named += 1
                    unit = {"": 1, "M": 1 << 20, "G": 1 << 30}[shown[2]]
                    assert default == float(shown[1]) * unit, f"gputop {name}: {action.option_strings}"
    assert named > 20


def test_every_command_is_listed_once_with_a_gap_before_its_purpose() -> None:
    rows = [row for group in GROUPS.values() for row in group]
    assert {row for row in rows if row.module} == set(TABLE.values())
    assert [row.typed for name, row in TABLE.items() if row.typed.split()[0] != name] == []
    lines = listing().splitlines()
    for row in rows:
        typed = f"  gputop {row.typed}".rstrip() + "  "
        assert [line for line in lines if line.startswith(typed) and line.endswith(f"  {row.summary}")]


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("snap -o x", "dump -o x"),
        ("serve --off", "serve --stop"),
        ("record -o x --lines costly", "record -o x --stacks slow"),
        ("--once --lines off", "--once --stacks off"),
    ],
)
def test_former_names_are_accepted_and_shown_nowhere(former: str, now: str) -> None:
    assert parse(former.split()) == parse(now.split())
    name, _ = parse(now.split())
    shown = {*re.findall(r"[\w-]+", cli.parser_of(name, cli.command_named(name)).format_help() + listing())}
    assert not (set(former.split()) - set(now.split())) & shown


def test_every_row_names_a_file_of_its_own() -> None:
    modules = [row.module for row in TABLE.values()]
    assert len(set(modules)) == len(modules)
    assert all(row.typed.split()[0] == name for name, row in TABLE.items())


def test_the_page_for_contributors_shows_what_a_command_takes() -> None:
    text = (ROOT / "docs" / "contributing.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| add a command |"))
    assert "its row in a group of `gputop/commands/overview.py`" in row
    assert "gputop/commands/" in row


# -- the first word ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "meant"), [("explian", "explain"), ("recrod", "record"), ("stat", "stats"), ("chekc", "check")]
)
def test_a_mistyped_command_is_guessed(word: str, meant: str) -> None:
    with pytest.raises(CommandError) as error:
        parse([word, "x"])
    assert f"did you mean gputop {meant}?" in str(error.value)
    assert error.value.status == 2


def test_a_file_in_place_of_a_command_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options = parse([str(RECORDING), "--once"])
    assert (name, options.file, options.once) == ("replay", str(RECORDING), True)
    (tmp_path / "stats").write_bytes(RECORDING.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert parse(["stats", "stats"])[0] == "stats", "a command goes before a file of its name"
    with pytest.raises(GputopError, match="a folder without recordings"):
        parse([str(tmp_path)])  # a folder


# -- demos -------------------------------------------------------------------------------------------


def test_a_demo_without_a_terminal_says_what_needs_none() -> None:
    assert_one_sentence(run("demo", "storm"), 1, "gputop demo storm --alone", "gputop demo storm --once")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demo", "storm", "--alone", "--once"], "--alone shows and records nothing"),
        (["demo", "--alone"], "needs the NAME"),
        (["demo", "storm", "--duration", "1"], "--duration goes with --alone or --once"),
    ],
)
def test_flags_of_a_demo_that_exclude_each_other(words: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said) as error:
        parse(words)
    assert error.value.status == 2


@pytest.mark.ebpf
def test_a_demo_is_one_frame_over_its_calls() -> None:
    done = run("demo", "numpy-sync", "--once", "--json", "--duration", "2")
    assert done.returncode == 0, done.stderr
    (process,) = json.loads(done.stdout)["processes"]
    assert process["calls_per_second"] > 0


@pytest.mark.ebpf
def test_a_demo_opens_the_screen_and_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGPU_STATE", str(tmp_path))  # no other demo on this machine has it
    status, output, restored = on_terminal(
        "demo", "numpy-sync", rows=30, columns=120, keys=b"q", shown="demo numpy-sync"
    )
    assert (status, restored) == (0, True)
    assert "gputop demo numpy-sync" in output, "the screen says what it shows"
    assert "keeps running as process" not in output
    left = [command for command in with_variable(f"SIMGPU_STATE={tmp_path}") if "gputop.demo" in command]
    assert left == []


# -- the shell's completion --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script and a recording."""
    folder = tmp_path_factory.mktemp("completion")
    done = run("--print-completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    (folder / "gputop.bash").write_text(done.stdout)
    (folder / "session.msgpack").touch()
    return folder


def candidates(folder: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    script = (
        'source ./gputop.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        "function_of() { set -- $(complete -p gputop); while [ $1 != -F ]; do shift; done; echo $2; }; "
        '$(function_of) gputop "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", "gputop", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.strip() for line in done.stdout.splitlines() if line.strip()}


def test_bash_completes_commands_flags_names_and_files(completion: Path) -> None:
    assert candidates(completion, "") >= set(TABLE)
    assert candidates(completion, "st") == {"stats", "stream"}
    assert candidates(completion, "explain", "--fail") == {"--fail-over"}
    assert candidates(completion, "demo", "num") == {"numpy-sync", "numpy-sync-fixed"}
    assert candidates(completion, "stats", "ses") == {"session.msgpack"}
    assert candidates(completion, "record", "-o", "ses") == {"session.msgpack"}
    assert candidates(completion, "record", "--stacks", "s") == {"slow"}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_with_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["--print-completion", shell])
    text = capsys.readouterr().out
    assert not ended.value.code
    assert all(name in text for name in TABLE)


# -- progress ----------------------------------------------------------------------------------------


def with_a_bar(*words: str, constants: str) -> tuple[int, str, str]:
    """Runs a command with its standard error on a terminal; (status, output, what was drawn)."""
    master, slave = pty.openpty()
    drawn: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while block := os.read(master, 65_536):
                drawn.append(block)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    code = (
        f"import sys; from gputop.commands import cli, progress; {constants}; sys.exit(cli.run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    os.close(slave)
    reading.join()
    os.close(master)
    return done.returncode, done.stdout, b"".join(drawn).decode()


@pytest.mark.parametrize(
    "words",
    [
        ("stats", "--json", str(RECORDING)),
        ("explain", str(RECORDING)),
        ("diff", str(RECORDING), str(RECORDING)),
    ],
)
@pytest.mark.mainly("words1")
def test_a_bar_on_the_terminal_goes_again_and_changes_no_output(words: tuple[str, ...]) -> None:
    status, output, drawn = with_a_bar(*words, constants="progress.AFTER_S = progress.WORTH_S = 0")
    plain = inside.run(*words)
    assert (status, output) == (plain.returncode, plain.stdout)
    assert plain.stderr == "", "no terminal, no bar"
    assert "reading" in drawn
    assert words[0] == "stats" or {"explain": "explaining", "diff": "comparing"}[words[0]] in drawn
    assert drawn.rstrip().endswith("\x1b[2K"), "its line is empty at the end"
    assert "\x1b[?25h" in drawn


def test_what_is_short_shows_no_bar() -> None:
    assert progress.AFTER_S >= 1
    # on a busy machine it may take longer than that
    status, _, drawn = with_a_bar("stats", str(RECORDING), constants="progress.AFTER_S = 100")
    assert (status, drawn) == (0, "")


def test_of_a_recording_behind_options_it_is_reported_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("session.msgpack").touch()
    with pytest.raises(CommandError, match=r"before its options: gputop session\.msgpack …"):
        parse(["--ascii", "session.msgpack"])
    with pytest.raises(CommandError, match="unrecognized arguments: other"):
        parse(["--ascii", "other"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["record", "--outptu", "x", "--", "true"], "there is no option --outptu: did you mean --output?"),
        (["explain", "--jsn", "x"], "there is no option --jsn: did you mean --json?"),
        (["diff", "--quux=3"], "there is no option --quux (see gputop diff --help)"),
    ],
)
def test_a_mistyped_option_is_named_before_what_is_missing(words: list[str], told: str) -> None:
    with pytest.raises(CommandError) as error:
        parse(words)
    assert told in str(error.value)


def test_options_may_be_shortened_and_belong_to_a_commands_own_commands() -> None:
    assert parse(["diff", "--jso", "a", "b"])[1].json
    assert parse(["fleet", "overview", "--json", "lake"])[1].json
