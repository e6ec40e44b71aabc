"""``gputop explain FILE``: status, flags, what is reported when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.writer import SessionWriter
from tests import items
from tests.cli_support import assert_one_sentence, write_recording
from tests.inside import run
from tests.programs import LAUNCH, SYNC, Program, started


def loop(host: int) -> Program:
    """Forty steps of 10 ms of waiting and some work of the host's, in us."""
    program = started()
    for number in range(40):
        now = number * (10_000 + host)
        program.call(LAUNCH, now, now + 10)
        program.call(SYNC, now + 20, now + 10_000)
    program.call(LAUNCH, 40 * (10_000 + host), 40 * (10_000 + host) + 10)
    return program


def written(path: Path, program: Program, **header: object) -> str:
    """A session file of a program."""
    records = program.batch()
    end = int(records["t_end"].max())
    writer = SessionWriter(path, {**program.header, **header})
    for item in (items.apis(), *program.samples, records, items.still_open(end, []), items.mark(1, end)):
        writer.write(item)
    writer.close()
    return str(path)


@pytest.fixture
def lossy(tmp_path: Path) -> str:
    """A recording that is a third idle."""
    return written(tmp_path / "lossy.msgpack", loop(5000))


def test_status_0_where_nothing_is_lost(tmp_path: Path) -> None:
    done = run("explain", written(tmp_path / "healthy.msgpack", loop(20)))
    assert (done.returncode, done.stderr) == (0, "")
    assert "no recurring stall" in done.stdout


def test_status_3_where_something_is(lossy: str) -> None:
    done = run("explain", lossy)
    assert (done.returncode, done.stderr) == (3, "")
    assert "C03, proved" in done.stdout
    assert "replay --at" in done.stdout


@pytest.mark.parametrize(("percent", "status"), [("0", 3), ("30", 3), ("34", 0), ("100", 0)])
def test_fail_over_asks_for_the_share_of_the_time(lossy: str, percent: str, status: int) -> None:
    assert run("explain", lossy, "--fail-over", percent).returncode == status


def test_json_is_one_object_with_the_same_status(lossy: str) -> None:
    done = run("explain", lossy, "--json")
    assert done.returncode == 3
    told = json.loads(done.stdout)
    assert told["schema"] == "gputop.explain/1"
    assert told["findings"][0]["loss_ns"]["lower"] == 40 * 5_000_000
    assert done.stdout.count("\n") == 1


def test_a_stretch_of_the_recording(lossy: str) -> None:
    done = run("explain", lossy, "--json", "--from", "0.15", "--to", "0.3")
    told = json.loads(done.stdout)
    assert told["duration_ns"] == 150_000_000
    assert told["gpu_idle_ns"]["lower"] == 50_000_000


def test_only_some_processes(lossy: str) -> None:
    assert json.loads(run("explain", lossy, "--json", "--pid", "77").stdout)["findings"] == []
    assert run("explain", lossy, "--pid", "10").returncode == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert_one_sentence(run("explain", str(tmp_path / "none.msgpack")), 1, "none.msgpack")


def test_a_file_that_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    assert_one_sentence(run("explain", str(tmp_path / "text")), 1, "text")


def test_a_recording_without_ebpf_explains_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "rootless.msgpack", loop(5000), calls_observed=False)
    assert_one_sentence(run("explain", path), 1, "without eBPF", "root")


def test_a_recording_of_others_work_has_a_report(tmp_path: Path) -> None:
    done = run("explain", str(write_recording(tmp_path / "any.msgpack")))
    assert done.returncode in (0, 3)
    assert done.stderr == ""


def test_a_torn_file_is_explained_up_to_the_tear(lossy: str) -> None:
    whole = Path(lossy).read_bytes()
    Path(lossy).write_bytes(whole[: len(whole) - 400])
    done = run("explain", lossy)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "2", "--to", "1"], "nothing from"),
        (["--from", "99"], "nothing from"),
        (["--from", "-1"], "--from"),
        (["--fail-over", "101"], "--fail-over"),
        (["--duration", "1"], "not both"),
        (["--wrong"], "--wrong"),
    ],
)
def test_what_cannot_be_meant_is_status_2(lossy: str, words: list[str], said: str) -> None:
    assert_one_sentence(run("explain", lossy, *words), 2, said)


def test_a_stretch_goes_with_a_file() -> None:
    assert_one_sentence(run("explain", "--from", "1"), 2, "FILE")
