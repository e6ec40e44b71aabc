"""What gputop logs of itself: nothing unless it is asked to, and then the traceback of each broken thread."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.analysis.live import LiveExplainer, ReplayExplainer
from gputop.errors import CommandError
from gputop.playback.feeds import LiveFeed
from gputop.playback.player import ReplayFeed
from gputop.playback.recorder import Recorder
from gputop.playback.survey import Survey
from gputop.process import failures
from gputop.process.diagnostics import diagnosing
from probes.observe.scanner import Scanner
from replay.past.history import History
from replay.reader import SessionReader
from tests.cli_support import assert_one_sentence, on_terminal, write_recording
from tests.gputop_command import GPUTOP
from tests.inside import run
from tests.waiting import HANGS_S, wait_until

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: needs root")


class MistakeOfOursError(Exception):
    """What nobody expects."""


def fail(*_words: Any, **_more: Any) -> Any:
    raise MistakeOfOursError("here")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "session.msgpack")


@pytest.fixture
def reader(recording: Path) -> Iterator[SessionReader]:
    opened = SessionReader(recording)
    yield opened
    opened.close()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that gputop logs to meanwhile."""
    file = tmp_path / "gputop.log"
    monkeypatch.setenv("GPUTOP_LOG", str(file))
    with diagnosing(0, screen=True):
        yield file


# -- off ---------------------------------------------------------------------------------------------


def test_it_is_off(recording: Path, tmp_path: Path) -> None:
    for words in (["stats", str(recording)], ["replay", "--once", str(recording)]):
        assert run(*words).stderr == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["session.msgpack"]


def test_what_is_off_makes_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "LogRecord", fail)
    with diagnosing(0, screen=False):
        for name in ("gputop.playback.feeds", "probes.observe.scanner", "replay.reader"):
            logging.getLogger(name).critical("no record is made of this")


# -- where it goes -----------------------------------------------------------------------------------


def test_v_logs_to_standard_error_and_leaves_the_output_alone(recording: Path) -> None:
    done = run("stats", "-v", "--json", str(recording))
    assert done.stdout == run("stats", "--json", str(recording)).stdout
    assert "INFO gputop.process.diagnostics [MainThread] Python 3" in done.stderr


def test_a_second_v_shows_more(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    once, twice = (run("stats", flag, missing) for flag in ("-v", "-vv"))
    assert "Traceback" not in once.stderr
    assert "Traceback (most recent call last):" in twice.stderr
    assert "MissingFileError" in twice.stderr, "what it comes of"


def test_under_the_screen_only_a_file_can_take_it(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_one_sentence(run("replay", "-v", str(recording)), 2, "GPUTOP_LOG=FILE")
    file = tmp_path / "gputop.log"
    monkeypatch.setenv("GPUTOP_LOG", str(file))
    status, output, restored = on_terminal("replay", "-v", str(recording), rows=24, columns=80, keys=b"q")
    assert (status, restored) == (0, True)
    assert "INFO" not in output
    assert "INFO gputop.process.diagnostics" in file.read_text()


def test_a_file_is_continued(recording: Path, tmp_path: Path) -> None:
    file = tmp_path / "gputop.log"
    file.write_text("before\n")
    for _ in range(2):
        assert run("stats", str(recording), env={"GPUTOP_LOG": str(file)}).returncode == 0
    assert file.read_text().startswith("before\n")
    assert file.read_text().count("gputop.process.diagnostics") == 2


def test_names_of_others_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    done = run("stats", "-vv", str(tmp_path / "\x1b]0;title\x07"))
    assert "Traceback" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_log_that_cannot_be_written_ends_and_the_command_goes_on(recording: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*GPUTOP, "stats", "-v", str(recording)],
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
            timeout=HANGS_S,
        )
    assert done.returncode == 0
    assert done.stdout


# -- a file, as root ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "folder", "nowhere"])
def test_nothing_but_a_file_of_ones_own_is_written(kind: str, recording: Path, tmp_path: Path) -> None:
    precious, log = tmp_path / "precious", tmp_path / "gputop.log"
    precious.write_text("kept")
    if kind == "link":
        log.symlink_to(precious)
    elif kind == "second name":
        log.hardlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(log)
    elif kind == "folder":
        log.mkdir()
    else:
        log = tmp_path / "none" / "gputop.log"
    assert_one_sentence(
        run("stats", str(recording), env={"GPUTOP_LOG": str(log)}), 1, f"GPUTOP_LOG={log} cannot be written"
    )
    assert precious.read_text() == "kept"


@needs_root
def test_root_writes_no_log_into_somebody_elses_file(recording: Path, tmp_path: Path) -> None:
    log = tmp_path / "gputop.log"
    log.write_text("theirs")
    os.chown(log, NOBODY, NOBODY)
    done = run("stats", str(recording), env={"GPUTOP_LOG": str(log)})
    assert_one_sentence(done, 1, "not a file of yours")
    assert log.read_text() == "theirs"


@needs_root
def test_behind_sudo_the_log_is_the_users(recording: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for path in (*tmp_path.parents, tmp_path):
        if path.stat().st_mode & 0o5 != 0o5 and path.is_relative_to("/tmp"):
            path.chmod(0o755)
    os.chown(folder, NOBODY, NOBODY)
    log = folder / "gputop.log"
    env = {"GPUTOP_LOG": str(log), "SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
    assert run("stats", str(recording), env=env).returncode == 0
    assert (log.stat().st_uid, log.stat().st_mode & 0o777) == (NOBODY, 0o600)


# -- no thread swallows a traceback ------------------------------------------------------------------


class Source:
    """A live source whose items are a mistake."""

    def __init__(self, header: dict[str, Any]) -> None:
        self.header = header

    items = fail

    def close(self) -> None:
        """Nothing to close."""


def break_observing(reader: SessionReader, _monkeypatch: pytest.MonkeyPatch) -> None:
    header = {**reader.header, "calls_observed": False}
    feed = LiveFeed(Source(header), None, recorder=Recorder(History(header), None))  # type: ignore[arg-type]
    feed.start()
    feed.thread.join()
    assert "here" in str(feed.failure())


def break_replay(reader: SessionReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayFeed, "turn", fail)
    feed = ReplayFeed(reader, 0, 1.0, playing=True)
    feed.start()
    feed.thread.join()
    feed.close()
    assert "here" in str(feed.failure())


def break_live_explanation(reader: SessionReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveExplainer, "consume", fail)
    explainer = LiveExplainer(reader.header)
    explainer.start()
    explainer.wake.set()
    explainer.thread.join()
    assert "here" in explainer.failure


def break_replayed_explanation(reader: SessionReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayExplainer, "go_to", fail)
    explainer = ReplayExplainer(reader)
    explainer.start()
    explainer.show(0, exact=True)
    wait_until(lambda: explainer.failure, "the explanation to fail")
    explainer.close()
    assert "here" in explainer.failure


def break_survey(reader: SessionReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Survey, "read", fail)
    survey = Survey(reader)
    survey.start()
    survey.thread.join()
    assert "here" in survey.failure


def break_scanner(_reader: SessionReader, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    scanner = Scanner.__new__(Scanner)
    scanner.report, scanner.events = told.append, None
    scanner.pages = io.BytesIO()  # type: ignore[assignment]
    stop = threading.Event()

    def turn(*_words: object) -> None:
        stop.set()
        fail()

    monkeypatch.setattr(Scanner, "turn", turn)
    thread = threading.Thread(target=scanner.run, args=(stop,))
    thread.start()
    thread.join()
    assert told


def break_any_thread(_reader: SessionReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", failures.thread_ended)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


BROKEN: dict[str, Callable[[SessionReader, pytest.MonkeyPatch], None]] = {
    "gputop.playback.feeds": break_observing,
    "gputop.playback.player": break_replay,
    "gputop.analysis.live": break_live_explanation,
    "gputop.analysis.live ": break_replayed_explanation,
    "gputop.playback.survey": break_survey,
    "probes.observe.scanner": break_scanner,
    "gputop.process.failures": break_any_thread,
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_what_a_thread_says_in_a_sentence_is_logged_with_its_traceback(
    name: str, log: Path, reader: SessionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    BROKEN[name](reader, monkeypatch)
    said = log.read_text()
    assert f"ERROR {name.strip()} [" in said
    assert "Traceback (most recent call last):" in said
    assert 'raise MistakeOfOursError("here")' in said


def test_a_mistake_in_the_main_thread_is_logged_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gputop.log"
    monkeypatch.setenv("GPUTOP_LOG", str(file))
    with pytest.raises(MistakeOfOursError), diagnosing(0, screen=False):
        fail()
    assert "MistakeOfOursError: here" in file.read_text()


def test_there_is_no_log_without_a_place_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTOP_LOG", str(tmp_path / "no" / "file"))
    with pytest.raises(CommandError, match="cannot be written"), diagnosing(0, screen=False):
        pass
