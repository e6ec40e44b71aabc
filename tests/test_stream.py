"""``gputop stream --jsonl``: one frame a line until stopped."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gputop.commands.screen.stream import MOST_WAITING, LineWriter
from gputop.engine.frame_json import frame_to_json
from gputop.playback.player import frame_at
from replay.reader import SessionReader
from tests.cli_support import assert_one_sentence, run, write_recording
from tests.gputop_command import GPUTOP
from tests.waiting import HANGS_S


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("stream") / "run.gputop")


def test_a_recording_is_all_its_frames_a_line_each(recording: Path) -> None:
    done = run("stream", "--jsonl", str(recording))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    reader = SessionReader(recording)
    expected = [frame_to_json(frame_at(reader, index)) for index in range(len(reader.marks))]
    reader.close()
    assert (done.returncode, done.stderr) == (0, "")
    assert [line["number"] for line in lines] == [frame["number"] for frame in expected]
    assert lines[-1] == expected[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stream"], "--jsonl"),
        (["stream", "--jsonl", "x", "--", "true"], "either a FILE or something to observe"),
        (["stream", "--jsonl", "x", "--duration", "1"], "either a FILE or something to observe"),
        (["stream", "--jsonl", "--pid", "1", "--", "true"], "exclude each other"),
    ],
)
@pytest.mark.mainly("words0---jsonl", "words3-exclude each other")
def test_words_that_make_no_sense(words: list[str], said: str) -> None:
    assert_one_sentence(run(*words), 2, said)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    assert_one_sentence(run("stream", "--jsonl", str(tmp_path / "none")), 1, "there is no file")


def test_a_reader_that_goes_away_is_no_error(recording: Path) -> None:
    end, start = os.pipe()
    os.close(end)
    done = subprocess.run(
        [*GPUTOP, "stream", "--jsonl", str(recording)], stdout=start, stderr=-1, check=False
    )
    os.close(start)
    assert (done.stderr, done.returncode) == (b"", 141)


@pytest.mark.timed
def test_a_reader_that_is_slow_misses_frames_and_holds_nobody_up() -> None:
    end, start = os.pipe()
    writer = LineWriter(start)
    line = b"x" * 99_999 + b"\n"  # more than a pipe holds: the first line is stuck
    began, taken = time.monotonic(), 0
    while not writer.behind:
        writer.put(line)
        taken += 1
    assert time.monotonic() - began < 30, "who waits for the pipe waits for ever"
    assert MOST_WAITING <= taken <= MOST_WAITING + 1
    read = 0
    while read < taken * len(line):
        read += len(os.read(end, 1 << 20))
    assert not writer.behind
    writer.close()
    os.close(start)
    os.close(end)


def test_when_the_reader_has_gone_the_writer_says_so_at_its_end() -> None:
    end, start = os.pipe()
    os.close(end)
    writer = LineWriter(start)
    writer.put(b"{}\n")
    with pytest.raises(BrokenPipeError):
        writer.close()
    os.close(start)


def lines_until(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """The first lines that a process writes."""
    assert process.stdout is not None
    read, deadline = b"", time.monotonic() + 60
    while read.count(b"\n") < count:
        assert time.monotonic() < deadline, "no lines come"
        if select.select([process.stdout], [], [], 0.1)[0]:
            read += os.read(process.stdout.fileno(), 1 << 20)
    return read.splitlines()[:count]


@pytest.mark.ebpf
def test_frames_come_until_it_is_stopped_and_then_it_ends_in_order() -> None:
    process = subprocess.Popen(
        [*GPUTOP, "stream", "--jsonl", "--rate", "10"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    numbers = [json.loads(line)["number"] for line in lines_until(process, 3)]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=HANGS_S)
    assert (process.returncode, errors) == (0, b"")
    assert all(json.loads(line)["schema"] == "gputop.frame/1" for line in rest.splitlines()[1:])


@pytest.mark.ebpf
def test_what_the_command_prints_does_not_run_into_the_lines() -> None:
    done = run("stream", "--jsonl", "--", "sh", "-c", "echo words; sleep 0.6")
    assert done.returncode == 0
    assert "words\n" in done.stderr
    assert all(json.loads(line)["schema"] == "gputop.frame/1" for line in done.stdout.splitlines())
    assert done.stdout
