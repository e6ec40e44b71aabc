"""Names of files, processes and functions are other people's data: none of them reaches the terminal raw."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from gputop.commands.observation import ObservedRun
from gputop.commands.screen.command_output import OutputFile
from gputop.commands.screen.watch import farewell
from gputop.process.child import Child
from gputop.process.stdio import print_message, print_traceback
from probes.source import APIS, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import inside
from tests.cli_support import run
from tests.gputop_command import GPUTOP

ROOT = Path(__file__).resolve().parent.parent
# a title, a colour, the eight-bit CSI, a line of its own, a line going right to left, nothing that is seen
POISON = "\x1b]0;t\x07\x1b[31m\x9b2J\r\nforged: \u2028\u202e\u200b\x7f\x00"
NAME = POISON.replace("\x00", "")
RAW = re.compile(r"[^\n]")


def assert_harmless(text: str, lines: int | None = None) -> None:
    """Nothing in it does more to a terminal than print, and no line is somebody else's."""
    raw = {char for char in RAW.findall(text) if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs")}
    assert raw == set(), ascii(text[:2000])
    assert not re.search(r"^\s*forged", text, re.MULTILINE)
    assert lines is None or text.count("\n") == lines, ascii(text)


# -- what is reported of recordings --------------------------------------------------------------------


def poisoned(value: Any) -> Any:
    """The same with every text made hostile."""
    if isinstance(value, str):
        return value + POISON
    if isinstance(value, dict):
        return {key: poisoned(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [poisoned(one) for one in value]
    return value


@pytest.fixture(
    scope="module", params=[("dataloader-workers", False), ("storm", True), ("numpy-sync", False)]
)
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real one whose texts are all hostile, and its name; of one the names of functions as well."""
    name, unknown = request.param
    reader = SessionReader(ROOT / "recordings" / f"{name}.msgpack")
    header = {key: value if key == "clock" else poisoned(value) for key, value in reader.header.items()}
    path = tmp_path_factory.mktemp("hostile") / f"s{NAME}.gputop"
    writer = SessionWriter(path, header)
    for item in reader.items():
        if not isinstance(item, Sample):
            writer.write(item)
        elif item.kind != APIS or unknown:  # what is not known is explained by nothing
            writer.write(Sample(item.kind, item.time_ns, poisoned(item.data)))
        else:
            writer.write(item)
    writer.close()
    reader.close()
    return path


@pytest.mark.parametrize(
    "words", [("replay", "--once"), ("replay", "--once", "--at", "1"), ("stats",), ("explain",)]
)
def test_what_is_reported_of_a_recording_is_harmless(recording: Path, words: tuple[str, ...]) -> None:
    done = inside.run(*words, str(recording))
    assert done.returncode in (0, 3), done.stderr
    assert_harmless(done.stdout)
    assert_harmless(done.stderr)
    assert "\\x1b" in done.stdout


def test_what_is_reported_of_two_recordings_is_harmless(recording: Path) -> None:
    done = inside.run("diff", str(recording), str(recording))
    assert done.returncode == 0, done.stderr
    assert_harmless(done.stdout + done.stderr)


@pytest.mark.parametrize("words", [("replay", "--json"), ("stats", "--json"), ("explain", "--json")])
def test_json_has_the_texts_as_they_are(recording: Path, words: tuple[str, ...]) -> None:
    done = inside.run(*words, str(recording))
    assert_harmless(done.stdout, lines=1)
    assert any(POISON in text for text in texts(json.loads(done.stdout)))


def texts(value: Any) -> list[str]:
    """All texts in a value."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--once", NAME),
        ("stats", f"/nowhere/{NAME}"),
        ("explain", NAME),
        ("diff", NAME, NAME),
        ("stream", "--jsonl", NAME),
        (NAME,),
        ("--pid", NAME),
        ("--rate", NAME),
        (f"--{NAME}",),
        ("demo", NAME),
        ("check", NAME),
        ("--lines", NAME),
        ("replay", "--at", NAME, "--once", str(ROOT / "recordings/numpy-sync.msgpack")),
    ],
)
def test_an_error_is_one_harmless_line(words: tuple[str, ...]) -> None:
    done = inside.run(*words)
    assert done.returncode not in (0, 3)
    assert_harmless(done.stderr, lines=1)
    assert done.stderr.startswith("gputop: ")


@pytest.mark.parametrize(
    "words",
    [("--once", "--", NAME), ("record", "-o", f"/nowhere/{NAME}", "--duration", "0.1"), ("stats", NAME)],
)
@pytest.mark.mainly("words0")
def test_an_error_of_a_gputop_of_its_own_is_one_harmless_line(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode not in (0, 3)
    errors = [line for line in done.stderr.split("\n") if not line.startswith("gputop: no eBPF")]
    assert_harmless("\n".join(errors), lines=1)
    assert done.stderr.startswith("gputop: ")


def test_a_file_that_is_no_recording_is_named_harmlessly(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"no recording")
    done = inside.run("stats", str(path))
    assert_harmless(done.stderr, lines=1)
    assert "\\x1b]0;t" in done.stderr


def test_a_traceback_is_harmless(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom gputop.commands import cli\n"
        "def fail(name, options): raise RuntimeError(sys.argv[1])\n"
        "cli.dispatch = fail\nsys.exit(cli.run(['check']))"
    )
    for environment in ({}, {"GPUTOP_TRACEBACK": "1"}):
        command = [sys.executable, "-c", code, NAME]
        done = subprocess.run(
            command, env=os.environ | environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert_harmless(done.stderr)
        assert ("Traceback" in done.stderr) == bool(environment)


def test_without_the_packages_gputop_needs_it_can_still_be_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gputop.format", None)
    print_message(NAME)
    assert_harmless(capsys.readouterr().err, lines=1)


def test_where_an_error_was_raised_is_reported_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_traceback(ValueError(NAME))
    assert_harmless(capsys.readouterr().err)


# -- notes -----------------------------------------------------------------------------------------


class _Ended:
    """A command that has ended."""

    pid = 1234
    command = (f"python{NAME}", NAME)
    name = Child.name

    def poll(self) -> int | None:
        return 0

    def outcome(self) -> str:
        return f"{self.name} ended with status 0 after 1.0 s"


class _GoesOn(_Ended):
    def poll(self) -> int | None:
        return None

    def outcome(self) -> str:
        return ""


@pytest.mark.parametrize("child", [_Ended(), _GoesOn()])
def test_the_farewell_is_harmless(child: Any, capsys: pytest.CaptureFixture[str]) -> None:
    log = OutputFile()
    os.write(log.descriptor, b"said")
    farewell(ObservedRun(None, "", child, None, {}, None), log)  # type: ignore[arg-type]
    log.remove()
    said = capsys.readouterr().err
    assert_harmless(said, lines=1)
    assert "python\\x1b" in said


def test_what_record_says_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / NAME
    program = tmp_path / f"program{NAME}"
    enough = tmp_path / "enough"
    program.write_text(f"#!/bin/sh\nwhile [ ! -e '{enough}' ]; do sleep 0.05; done\n")
    program.chmod(0o755)
    command = [*GPUTOP, "record", "-o", str(path), "--duration", "0.2", "--", str(program)]
    said = ""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as recorder:
        assert recorder.stderr is not None
        for line in recorder.stderr:
            said += line
            if "waiting for " in line:
                enough.touch()
    assert recorder.returncode == 0, said
    assert path.stat().st_size
    assert_harmless(said)
    assert enough.exists(), said
