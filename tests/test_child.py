"""The watched command starts on command, as the right user, and its end is told truly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.process.child import Child, ChildError, Identity
from tests.processes import state_of
from tests.waiting import wait_until


def test_it_does_not_run_before_it_is_released(tmp_path: Path) -> None:
    child = Child(["touch", str(tmp_path / "ran")], os.environ)
    wait_until(lambda: state_of(child.pid) == "S", "a child that waits")
    assert not (tmp_path / "ran").exists()
    child.release()
    assert child.wait() == 0
    assert (tmp_path / "ran").exists()


def test_it_never_runs_when_it_is_discarded(tmp_path: Path) -> None:
    child = Child(["touch", str(tmp_path / "ran")], os.environ)
    child.discard()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("code", "status"), [("exit 7", 7), ("kill -9 $$", 128 + 9)])
def test_its_status_is_a_shell_s(code: str, status: int) -> None:
    child = Child(["sh", "-c", code], os.environ)
    child.release()
    assert child.wait() == status


@pytest.mark.parametrize(("program", "status"), [("/nowhere/program", 127), ("/etc/passwd", 126)])
def test_a_program_that_cannot_run_is_told(program: str, status: int) -> None:
    child = Child([program], os.environ)
    with pytest.raises(ChildError) as failure:
        child.release()
    assert failure.value.status == status
    assert program in str(failure.value)


def test_with_an_output_it_has_no_input(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as output:
        child = Child(["sh", "-c", "cat; echo done; echo error >&2"], os.environ, None, output.fileno())
        child.release()
        assert child.wait() == 0
    assert (tmp_path / "out").read_text() == "done\nerror\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_it_becomes_the_user_with_home_and_groups() -> None:
    read, write = os.pipe()
    user = Identity(65534, 65534, "nobody", "/nonexistent")
    child = Child(["sh", "-c", "id -u; id -g; id -G; echo $HOME $USER"], os.environ, user, write)
    child.release()
    child.wait()
    os.close(write)
    with os.fdopen(read) as lines:
        assert lines.read().split("\n")[:4] == ["65534", "65534", "65534", "/nonexistent nobody"]


def test_signals_that_gputop_ignores_reach_it() -> None:
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        child = Child([sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    finally:
        signal.signal(signal.SIGTERM, previous)
    child.release()
    child.send(signal.SIGTERM)
    assert child.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize(("ours", "its"), [("5", "5"), ("-5", "0"), ("0", "0")])
def test_its_session_is_as_nice_as_ours_and_goes_before_no_others(ours: str, its: str) -> None:
    autogroup = Path("/proc/self/autogroup")
    if not autogroup.exists():
        pytest.skip("this kernel does not share out CPU by session")
    if os.geteuid() != 0 and ours.startswith("-"):
        pytest.skip("only root goes before others")
    code = f"""
import os
from gputop.process.child import Child
os.setsid()
open("/proc/self/autogroup", "w").write("{ours}")
child = Child(["cat", "/proc/self/autogroup"], os.environ)
child.release()
child.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["nice", its]


def test_it_runs_where_our_session_is_the_first_process_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There /proc/self/autogroup is empty: in containers, and where an init system starts gputop directly."""
    empty = tmp_path / "autogroup"
    empty.touch()
    monkeypatch.setattr("gputop.process.child.AUTOGROUP", empty)
    child = Child([sys.executable, "-c", "raise SystemExit(7)"], os.environ)
    child.release()
    assert child.wait() == 7
