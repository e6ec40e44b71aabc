"""The daemon's socket, and what it keeps, in folders that others may change."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.serve.clients.listening import listen
from gputop.serve.flight_recorder import Keeper, KeepLimits
from tests.rootless_support import NOBODY, as_nobody

SECRET = "root's own"
# a user in a folder of the user's: what appears there as a socket is swapped for a link to a file of root's
SWAPPING = """
import os, stat, sys
folder, target = sys.argv[1:]
os.chdir(folder)
print("ready", flush=True)
while True:
    try:
        if stat.S_ISSOCK(os.lstat("s").st_mode):
            os.rename("s", "away")
            os.symlink(target, "s")
        elif os.lstat("s"):
            os.unlink("s")
    except OSError:
        pass
"""


def _file(path: Path) -> None:
    path.write_text(SECRET)


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.with_name("target").write_text(SECRET)
    path.symlink_to("target")


def _link_to_a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path.with_name("target")))
    path.symlink_to("target")


@pytest.mark.parametrize("made", [_file, _folder, _pipe, _link, _link_to_a_socket])
def test_what_is_no_socket_stays_where_one_is_wanted(made: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "s"
    made(path)
    before = path.lstat()
    with pytest.raises(FileExistsError, match="not a socket is there"):
        listen(str(path))
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_the_socket_of_a_dead_daemon_makes_room_and_that_of_a_live_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    alive = listen(str(path))
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        with pytest.raises(OSError, match="in use") as refused:
            listen(str(path))
        assert refused.value.errno == errno.EADDRINUSE
    finally:
        alive.close()
    assert not path.exists()


def test_at_the_end_only_its_own_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "s"
    ended = listen(str(path))
    path.unlink()
    path.write_text(SECRET)
    ended.close()
    assert path.read_text() == SECRET


def test_at_the_end_it_goes_from_where_it_was_made_whatever_was_renamed(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    ended = listen(str(folder / "s"))
    folder.rename(tmp_path / "there")
    folder.mkdir()
    (folder / "s").write_text(SECRET)
    ended.close()
    assert (folder / "s").read_text() == SECRET
    assert os.listdir(tmp_path / "there") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_a_socket_of_another_user_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
    os.lchown(path, NOBODY, NOBODY)
    with pytest.raises(FileExistsError, match=f"of user {NOBODY}"):
        listen(str(path))
    assert path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_no_folder_is_made_behind_a_link_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to("root")
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="link of another user"):
        listen(str(tmp_path / "link" / "new" / "s"))
    with pytest.raises(PermissionError, match="link of another user"):
        Keeper(_Daemon, str(tmp_path / "link" / "new"), KeepLimits())
    assert os.listdir(tmp_path / "root") == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_a_users_folder_leads_no_mode_to_a_file_of_roots(tmp_path: Path) -> None:
    """2,227 tries made a file of root's writable for all; a try is one start of a daemon."""
    target, folder = tmp_path / "target", tmp_path / "theirs"
    tmp_path.chmod(0o755)
    _file(target)
    target.chmod(0o600)
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    words = [*as_nobody(), sys.executable, "-c", SWAPPING, str(folder), str(target)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as swapping:
        try:
            assert swapping.stdout is not None
            assert swapping.stdout.readline() == b"ready\n"
            for _ in range(3_000):
                try:
                    listen(str(folder / "s")).close()
                except OSError:
                    continue
        finally:
            swapping.kill()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text() == SECRET


# -- what is kept --------------------------------------------------------------------------------------

_Daemon: Any = None  # is not asked before there is something to keep


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_kept_sessions_lie_where_nobody_else_can_put_another_folder(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match=rf"other users can write to it: .*user {NOBODY}"):
        Keeper(_Daemon, str(theirs / "kept"), KeepLimits())


def test_the_mask_is_as_it_was_and_no_descriptor_stays_when_it_cannot_be(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        _file(tmp_path / "s")
        count = len(os.listdir("/proc/self/fd"))
        for place in ("s", "x" * 300, ""):
            with pytest.raises(OSError, match=r".+"):
                listen(f"{tmp_path}/{place}")
        assert len(os.listdir("/proc/self/fd")) == count
        listen(str(tmp_path / "made")).close()
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
