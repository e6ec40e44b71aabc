"""No other user can keep gputop waiting for its turn to attach, and no gputop that hangs can for ever."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from probes.ebpf import attach_lock, attach_perf, detacher

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become somebody else")


def as_nobody(action: Callable[[], object]) -> int:
    """Runs it in a child that is somebody else, then stands still: its pid once it is done or has failed."""
    done, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            action()
        except PermissionError:
            os._exit(13)
        os.close(tell)
        signal.pause()
        os._exit(0)
    os.close(tell)
    os.read(done, 1)
    os.close(done)
    return pid


def end(pid: int) -> int:
    """Kills it; how it had ended, if it had."""
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def alarm() -> Iterator[None]:
    """Gives the alarm's handler back."""
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.timed
@as_root
def test_whoever_locks_what_all_may_read_in_sysfs_keeps_nobody_waiting(tmp_path: Path) -> None:
    told = attach_perf.PMU / "type"
    if not told.exists():
        pytest.skip("this kernel has no uprobes of perf's")
    holder = as_nobody(lambda: fcntl.flock(os.open(told, os.O_RDONLY), fcntl.LOCK_EX))
    try:
        begun = time.monotonic()
        with attach_lock.turn(tmp_path / "locks"):
            assert time.monotonic() - begun < attach_lock.PATIENCE_S / 2
    finally:
        assert end(holder) == -signal.SIGKILL, "it had the lock"


@as_root
def test_the_files_to_lock_cannot_be_opened_by_anybody_else() -> None:
    for lock in attach_lock.opened():
        path = os.readlink(f"/proc/self/fd/{lock}")
        os.close(lock)
        if path.startswith("/memfd:"):
            pytest.skip("there is no folder for locks here")
        child = as_nobody(partial(os.open, path, os.O_RDONLY))
        assert end(child) == 13


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    readable = tmp_path / "readable"
    readable.mkdir(0o700)
    (readable / "turn").touch(0o644)
    odd = tmp_path / "odd"
    odd.mkdir(0o700)
    os.mkfifo(odd / "turn", 0o644)
    for folder in (open_to_all, link, readable, odd, tmp_path / "none" / "there"):
        for lock in attach_lock.opened(folder):
            assert os.readlink(f"/proc/self/fd/{lock}").startswith("/memfd:"), folder
            os.close(lock)


def test_each_user_has_a_folder_of_his_own() -> None:
    assert attach_lock.folder_of(0, {"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/gputop")
    assert attach_lock.folder_of(7, {"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/user/7/gputop")
    assert attach_lock.folder_of(7, {}) is None


def test_who_attaches_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_lock, "PATIENCE_S", 0.2)
    with attach_lock.turn(tmp_path / "locks"), attach_lock.turn(tmp_path / "locks"):
        pass  # else it would stand here


@pytest.mark.timed
@pytest.mark.usefixtures("alarm")
def test_who_detaches_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detacher, "PATIENCE_S", 1)
    read, write = os.pipe()
    links = [os.dup(read) for _ in range(20)]
    turn, queue = attach_lock.opened(tmp_path / "locks")
    with attach_lock.turn(tmp_path / "locks"), closing(os.fdopen(turn)), closing(os.fdopen(queue)):
        begun = time.monotonic()
        detacher.close(links, turn, queue)
        assert time.monotonic() - begun < 10, "it gives up once, not for each of twenty links"
    for link in links:
        with suppress(OSError):
            os.close(link)
            pytest.fail("a link is open")
    os.close(read)
    os.close(write)


def test_a_turn_is_held_until_its_end(tmp_path: Path) -> None:
    turn, queue = attach_lock.opened(tmp_path / "locks")
    with closing(os.fdopen(turn)), closing(os.fdopen(queue)):
        with attach_lock.turn(tmp_path / "locks"), pytest.raises(BlockingIOError):
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
