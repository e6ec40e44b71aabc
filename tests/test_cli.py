"""The program from outside: what it says, and with which status it ends, when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgpack  # type: ignore[import-untyped, unused-ignore]
import pytest

from gputop.commands.command import VERSION
from replay.reader import SessionReader
from tests import inside
from tests.cli_support import (
    GPUTOP,
    assert_one_sentence,
    complete,
    on_terminal,
    run,
    wait_for_size,
    write_recording,
)
from tests.waiting import HANGS_S, wait_until

NOBODY = 65534
NO_PROCESS = str(1 << 22 | 1)  # above the largest number that the kernel gives
# nobody may neither read this checkout nor this interpreter where they lie in root's home
AS_NOBODY = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
)  # fmt: skip


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("cli") / "run.gputop")


@pytest.fixture
def nobodys_folder() -> Iterator[Path]:
    """A directory that belongs to nobody and that nobody can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 KiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


# -- words that make no sense ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frobnicate"], "no file 'frobnicate' and no command of that name"),
        (["--pid", "abc"], "'abc' is not a process ID"),
        (["--pid", "0"], "positive"),
        (["--ring", "3"], "power of two"),
        (["--rate", "0"], "outside 0.5 to 20 Hz"),
        (["--rate", "nan"], "outside 0.5 to 20 Hz"),
        (["serve", "--rate", "0"], "outside 0.5 to 20 Hz"),
        (["--frobnicate"], "--frobnicate"),
        (["--"], "no command after --"),
        (["record", "-o", "x", "--"], "no command after --"),
        (["--pid", "1", "--", "true"], "exclude each other"),
        (["--duration", "1"], "--duration goes with --once"),
        (["record"], "-o/--output"),
        (["replay"], "FILE"),
        (["replay", "x", "--speed", "1000"], "outside 0.25 to 64"),
        (["stats", "x", "--", "true"], "takes no command"),
        (["demo", "frobnicate"], "no demo 'frobnicate'"),
    ],
)
def test_usage_is_explained_in_a_sentence_with_status_2(words: list[str], said: str) -> None:
    assert_one_sentence(inside.run(*words), 2, said)


def test_a_python_that_was_not_set_up_for_gputop_is_named() -> None:
    code = (
        "import sys; sys.path.append('.'); from gputop.commands.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    done = run("--once", program=(sys.executable, "-I", "-S", "-c", code))
    assert_one_sentence(done, 1, sys.executable, "has no package", "make run")


def test_a_time_outside_the_recording_is_usage(recording: Path) -> None:
    assert_one_sentence(inside.run("replay", "--once", "--at", "soon", str(recording)), 2, "--at soon")
    done = inside.run("replay", "--once", "--at", "1e9", str(recording))
    assert_one_sentence(done, 2, "outside the recording")


@pytest.mark.parametrize(
    "command", [(), ("record",), ("replay",), ("stats",), ("stream",), ("demo",), ("simgpu",)]
)
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    done = inside.run(*command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: gputop")


@pytest.mark.parametrize("words", [(), ("record",)])
def test_help_is_a_word_as_well(words: tuple[str, ...]) -> None:
    assert inside.run("help", *words).stdout == inside.run(*words, "--help").stdout


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"gputop {VERSION}\n")
    assert VERSION[0].isdigit()


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("stats",), ("replay", "--once")])
def test_files_that_cannot_be_read_are_named(
    command: tuple[str, ...], tmp_path: Path, recording: Path
) -> None:
    text, empty, cut, newer = (tmp_path / name for name in ("text", "empty", "cut", "newer"))
    text.write_text("not a session\n")
    empty.touch()
    cut.write_bytes(recording.read_bytes()[:40])
    header = {"format": "gputop.session", "major": 9, "minor": 0}
    newer.write_bytes(msgpack.packb(header))
    cases = {
        text: "is a text file, not a gputop recording",
        empty: "is empty",
        cut: "ends within its header",
        newer: "newer gputop",
        tmp_path: "is a folder without recordings",
        tmp_path / "none": "there is no file",
    }
    for path, said in cases.items():
        assert_one_sentence(inside.run(*command, str(path)), 1, str(path), said)


def test_a_truncated_file_is_shown_as_far_as_it_goes(tmp_path: Path, recording: Path) -> None:
    cut = tmp_path / "cut"
    data = recording.read_bytes()
    cut.write_bytes(data[: len(data) * 2 // 3])
    for command in (["stats"], ["stats", "--json"], ["replay", "--once"], ["replay", "--once", "--json"]):
        done = inside.run(*command, str(cut))
        assert done.returncode == 0
        assert not done.stderr
        said = " ".join(json.loads(done.stdout)["problems"]) if "--json" in command else done.stdout
        assert "incomplete" in said


def keys_of(value: object) -> set[str]:
    """All keys of nested objects."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if isinstance(value, dict):
        return set(value) | set().union(*map(keys_of, value.values()))
    return set()


def test_every_key_of_the_statistics_is_documented(recording: Path) -> None:
    done = inside.run("stats", "--json", str(recording))
    found = json.loads(done.stdout)
    assert found["schema"] == "gputop.stats/1"
    assert {"p99_ns", "runnable_ns"} <= keys_of(found), "the recording has calls and threads"
    text = (Path(__file__).parent.parent / "docs/json.md").read_text().partition("## gputop.stats/1")[2]
    assert {key for key in keys_of(found) if f"`{key}`" not in text} == set()


def test_a_reader_that_goes_away_is_no_error(recording: Path) -> None:
    for command in (["stats", str(recording)], ["stats", "--json", str(recording)]):
        end, start = os.pipe()
        os.close(end)
        done = subprocess.run(
            [*GPUTOP, *command], stdout=start, stderr=subprocess.PIPE, check=False, timeout=HANGS_S
        )
        os.close(start)
        assert (done.stderr, done.returncode) == (b"", 141)


def test_output_that_cannot_be_written_is_reported(recording: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*GPUTOP, "stats", str(recording)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=HANGS_S,
        )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.stderr.startswith("gputop: ")
    assert done.returncode == 1


# -- what the machine lacks -----------------------------------------------------------------------


def test_the_simulated_gpu_without_a_compiler_names_the_package(tmp_path: Path) -> None:
    # what was built before works without a compiler, for everybody if root built it: look elsewhere
    script = (
        "import sys; from pathlib import Path; from gputop.commands import cli; "
        "from gputop.process import c_build; "
        f"c_build.ROOT_CACHE = Path({str(tmp_path / 'cache')!r}); sys.exit(cli.run(['simgpu']))"
    )
    env = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = run(program=(sys.executable, "-c", script), env=env)
    assert_one_sentence(done, 1, "apt-get install gcc libc6-dev")


def test_no_terminal_names_what_needs_none(recording: Path) -> None:
    assert_one_sentence(run("replay", str(recording)), 1, "needs a terminal", "--once")
    assert_one_sentence(run(), 1, "needs a terminal", "--once")


@pytest.mark.ebpf
def test_a_process_that_is_not_there(tmp_path: Path) -> None:
    assert_one_sentence(run("--once", "--pid", NO_PROCESS), 1, f"no process {NO_PROCESS}")
    assert_one_sentence(run("--once", "--pid", NO_PROCESS, "--pid", "1"), 1, f"no process {NO_PROCESS}")
    file = tmp_path / "x"
    assert_one_sentence(
        run("record", "--lines", "off", "-o", str(file), "--pid", f"1,{NO_PROCESS}"), 1, NO_PROCESS
    )
    assert not file.exists()


@pytest.mark.ebpf
@pytest.mark.parametrize("path", ["/nonexistent/x", "/", "/dev/full", "/proc/x"])
@pytest.mark.mainly("/dev/full", "/nonexistent/x")
def test_a_recording_that_cannot_be_created_lets_no_command_run(path: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    done = run("record", "--lines", "off", "-o", path, "--", "touch", str(ran))
    assert_one_sentence(done, 1, path.rpartition("/")[0] or path)
    assert not ran.exists()


@pytest.mark.ebpf
@pytest.mark.long
def test_a_full_disk_ends_the_recording_and_not_the_command(small_disk: Path) -> None:
    script = "sleep 0.5; i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done; echo over"
    done = run("record", "--lines", "off", "-o", str(small_disk / "x"), "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (1, "over\n")
    assert done.stderr.count("\n") == 1
    assert "full" in done.stderr
    kept = run("stats", str(small_disk / "x"))
    assert kept.returncode == 0, "what was written until then can be read"


# -- the command after -- -------------------------------------------------------------------------


@pytest.mark.ebpf
@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["/nonexistent"], 127),
        (["no-such-program"], 127),
        (["/etc/passwd"], 126),
        (["true"], 0),
    ],
)
@pytest.mark.mainly("command0-7", "command1-137", "command2-127", "command5-0")
def test_the_status_of_the_command_is_passed_on(command: list[str], status: int, tmp_path: Path) -> None:
    done = run("record", "--lines", "off", "-o", str(tmp_path / "x"), "--", *command)
    if status in (126, 127):
        assert_one_sentence(done, status, f"cannot run {command[0]}")
    else:
        assert done.returncode == status
        assert complete(tmp_path / "x")


@pytest.mark.ebpf
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.mainly("2")
def test_a_signal_ends_the_recording_in_order(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "x"
    process = subprocess.Popen(
        [*GPUTOP, "record", "--lines", "off", "-o", str(file), "--", "sleep", "60"],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    wait_for_size(file, 4000)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=HANGS_S)
    assert process.returncode == 128 + number
    assert b"Traceback" not in errors
    assert complete(file)


@pytest.mark.ebpf
def test_a_signal_ends_a_recording_of_the_whole_machine(tmp_path: Path) -> None:
    file = tmp_path / "x"
    process = subprocess.Popen([*GPUTOP, "record", "--lines", "off", "-o", str(file)], stderr=subprocess.PIPE)
    wait_for_size(file, 4000)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=HANGS_S)
    assert process.returncode == 0
    assert complete(file)


@pytest.mark.ebpf
def test_a_duration_ends_the_recording_and_not_the_command(tmp_path: Path) -> None:
    file, let_go, after = tmp_path / "x", tmp_path / "let go", tmp_path / "after"
    command = f"until test -e '{let_go}'; do sleep 0.1; done; touch '{after}'; exit 3"
    process = subprocess.Popen(
        [*GPUTOP, "record", "--lines", "off", "-o", file, "--duration", "1", "--", "sh", "-c", command],
        stderr=subprocess.DEVNULL,
    )
    wait_for_size(file, 1)
    wait_until(lambda: complete(file), "the recording's end")
    assert process.poll() is None
    let_go.touch()
    assert (process.wait(HANGS_S), after.exists()) == (3, True)
    reader = SessionReader(file)
    assert int(reader.marks[-1]) - int(reader.header["start_ns"]) > 0.9e9
    reader.close()


# -- sudo -----------------------------------------------------------------------------------------

WHO = "echo $(id -u):$(id -g):$(id -G):$HOME:$USER"


@pytest.mark.ebpf
def test_under_sudo_the_command_and_the_file_are_the_users(nobodys_folder: Path) -> None:
    file = nobodys_folder / "x"
    env = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY), "HOME": "/root", "USER": "root"}
    done = run("record", "--lines", "off", "-o", str(file), "--", "sh", "-c", WHO, env=env)
    assert done.stdout == f"{NOBODY}:{NOBODY}:{NOBODY}:/nonexistent:nobody\n"
    assert (file.stat().st_uid, file.stat().st_gid, file.stat().st_mode & 0o777) == (NOBODY, NOBODY, 0o600)
    done = run(
        "record", "--lines", "off", "-o", str(file), "--force", "--as-root", "--", "sh", "-c", WHO, env=env
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0:0:")
    assert done.stdout.endswith(":/root:root\n")
    assert file.stat().st_uid == NOBODY


# -- the terminal ---------------------------------------------------------------------------------


def test_a_terminal_of_20_by_5_is_no_reason_to_fail(recording: Path) -> None:
    status, output, restored = on_terminal("replay", str(recording), rows=5, columns=20, keys=b"q")
    assert (status, restored) == (0, True)
    assert "Traceback" not in output


@pytest.mark.ebpf
def test_the_live_screen_gives_the_terminal_back_and_shows_where_the_command_is() -> None:
    words = ("--", "sleep", "4")
    status, output, restored = on_terminal(*words, rows=24, columns=80, keys=b"q")
    after = output.rsplit("\x1b[?1049l", 1)[1]
    assert (status, restored) == (0, True)
    assert "sleep 4 keeps running as process" in after
    Path(after.rsplit("its output: ", 1)[1].split()[0]).unlink()


@pytest.mark.ebpf
def test_a_live_screen_that_cannot_start_leaves_the_terminal_alone() -> None:
    status, output, restored = on_terminal("--pid", NO_PROCESS, rows=24, columns=80, keys=b"q")
    assert (status, restored) == (1, True)
    assert "\x1b" not in output
