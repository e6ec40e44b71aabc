"""Whoever owns the folder that root writes into cannot lead what is written, or removed, to another place."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gputop.commands.screen.command_output import OutputFile
from gputop.errors import GputopError
from gputop.files import output_files
from gputop.ui.exports import ExportError, save
from probes.process import openat2
from replay.coding.file_format import SessionError
from replay.ownership import create
from replay.writer import SessionWriter
from tests.rootless_support import NOBODY, as_nobody
from tests.session_data import HEADER

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: needs root")

ROOT = Path(__file__).resolve().parent.parent
USER = (NOBODY, NOBODY)
SUDOER = 65534  # sudo's users have a name


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of nobody's, in one that everybody reaches."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, *USER)
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder of root's."""
    folder = tmp_path / "secret"
    folder.mkdir(mode=0o755)
    return folder


def link(path: Path, target: Path, owner: int = NOBODY) -> Path:
    """A symbolic link of somebody's."""
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)
    return path


def record(path: Path, owner: tuple[int, int] | None) -> None:
    """Writes an empty recording."""
    SessionWriter(path, HEADER, owner=owner).close()


# -- opening ---------------------------------------------------------------------------------------


def test_root_follows_no_link_of_a_user(theirs: Path, secret: Path) -> None:
    link(theirs / "way", secret)
    link(theirs / "roots", secret, owner=0)  # a user may move such a link there
    for way in ("way", "roots", "way/../secret"):
        with pytest.raises(SessionError, match=r"symbolic link.*name the directory that it leads to"):
            record(theirs / way / "s", None)
    assert list(secret.iterdir()) == []


def test_root_s_own_links_lead_on(theirs: Path, secret: Path, tmp_path: Path) -> None:
    (secret / "deep").mkdir()
    link(tmp_path / "absolute", secret, owner=0)
    link(secret / "relative", Path("../absolute/deep"), owner=0)
    record(tmp_path / "absolute" / "relative" / "s", None)
    assert (secret / "deep" / "s").exists()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SessionError):
        record(tmp_path / "loop" / "s", None)


def test_a_user_s_own_links_lead_on_for_that_user(theirs: Path) -> None:
    (theirs / "real").mkdir()
    os.chown(theirs / "real", *USER)
    link(theirs / "way", theirs / "real")
    record(theirs / "way" / "by-sudo", USER)
    code = "import sys; from replay.writer import SessionWriter; SessionWriter(sys.argv[1], {}).close()"
    words = [*as_nobody(), sys.executable, "-c", code, str(theirs / "way" / "alone")]
    subprocess.run(words, cwd=ROOT, check=True)
    assert {path.name: path.stat().st_uid for path in (theirs / "real").iterdir()} == {
        "by-sudo": NOBODY,
        "alone": NOBODY,
    }


def test_relative_paths_and_parents_are_walked_too(
    theirs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(secret)
    for path in ("s1", "./s2", "../secret//s3"):
        record(Path(path), None)
    assert {path.name for path in secret.iterdir()} == {"s1", "s2", "s3"}
    monkeypatch.chdir(theirs)
    link(theirs / "way", secret)
    with pytest.raises(SessionError, match="symbolic link"):
        record(Path("way/s4"), None)


def test_a_link_of_proc_does_not_lead_past_closed_folders(
    theirs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to a folder that gputop has open: nobody could not get there."""
    (secret / "open").mkdir()
    (secret / "open").chmod(0o777)
    secret.chmod(0o700)
    held = os.open(secret / "open", os.O_RDONLY)
    try:
        link(theirs / "way", Path(f"/proc/{os.getpid()}/fd/{held}"))
        with pytest.raises(SessionError):
            record(theirs / "way" / "s", USER)
    finally:
        os.close(held)
    assert list((secret / "open").iterdir()) == []


def test_without_openat2_users_record_all_the_same(
    theirs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openat2, "OPENAT2", 100_000)
    record(theirs / "s", USER)
    assert (theirs / "s").stat().st_uid == NOBODY
    with pytest.raises(SessionError, match="there is no directory"):
        record(theirs / "none" / "s", USER)


@pytest.fixture
def swapping(theirs: Path, secret: Path) -> Iterator[Path]:
    """A folder whose owner makes it a link to root's and back, all the time."""
    way, other, leads = theirs / "way", theirs / "other", theirs / "leads"
    way.mkdir()
    os.chown(way, *USER)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            way.rename(other)
            link(way, secret)
            way.rename(leads)
            other.rename(way)
            leads.unlink()

    thread = threading.Thread(target=swap)
    thread.start()
    yield way
    stop.set()
    thread.join()


@pytest.mark.parametrize("owner", [None, USER])
@pytest.mark.slow
def test_a_folder_that_is_swapped_meanwhile_leads_nowhere(
    swapping: Path, secret: Path, owner: tuple[int, int] | None
) -> None:
    made = 0
    for number in range(400):
        try:
            record(swapping / f"s{number}", owner)
            made += 1
        except SessionError:
            continue
    assert list(secret.iterdir()) == []
    assert made > 0


# -- afterwards ------------------------------------------------------------------------------------


def swapped(folder: Path, secret: Path) -> Path:
    """Puts a link to root's folder in the place of a folder; where that has gone."""
    gone = folder.with_name("gone")
    folder.rename(gone)
    link(folder, secret)
    return gone


def test_what_was_recorded_for_nothing_is_removed_where_it_was_made(theirs: Path, secret: Path) -> None:
    (theirs / "way").mkdir()
    os.chown(theirs / "way", *USER)
    (secret / "s").write_text("root's")
    writer = SessionWriter(theirs / "way" / "s", HEADER, owner=USER)
    gone = swapped(theirs / "way", secret)
    writer.discard()
    writer.close()
    assert (secret / "s").read_text() == "root's"
    assert list(gone.iterdir()) == []


def test_what_has_taken_its_name_stays(theirs: Path) -> None:
    writer = SessionWriter(theirs / "s", HEADER, owner=USER)
    (theirs / "s").rename(theirs / "moved")
    (theirs / "s").write_text("another")
    writer.discard()
    assert (theirs / "s").read_text() == "another"
    output = create(str(theirs / "t"), None)
    output.remove()
    output.close()
    assert not (theirs / "t").exists()


def test_the_output_of_a_command_is_read_and_removed_where_it_was_made(
    theirs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs / "way").mkdir()
    os.chown(theirs / "way", SUDOER, SUDOER)
    monkeypatch.setenv("SUDO_UID", str(SUDOER))
    monkeypatch.setenv("SUDO_GID", str(SUDOER))
    monkeypatch.setattr("tempfile.tempdir", str(theirs / "way"))
    output = OutputFile()
    assert output.path.stat().st_uid == SUDOER
    os.write(output.descriptor, b"said\n")
    (secret / output.path.name).write_text("root's")
    gone = swapped(theirs / "way", secret)
    with output.reader() as file:
        assert file.read() == "said\n"
    assert output.size == 5
    output.remove()
    assert (secret / output.path.name).read_text() == "root's"
    assert list(gone.iterdir()) == []


def test_what_could_not_be_saved_is_removed_where_it_was_made(
    theirs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs / "way").mkdir()
    monkeypatch.chdir(theirs)
    (secret / "screen.txt").write_text("root's")

    def full(_descriptor: int) -> int:
        assert (theirs / "way" / "screen.txt").exists()
        swapped(theirs / "way", secret)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "dup", full)
    with pytest.raises(ExportError, match="nothing was saved"):
        save("way/screen.txt", "text")
    assert (secret / "screen.txt").read_text() == "root's"
    assert list((theirs / "gone").iterdir()) == []


# -- folders of exports --------------------------------------------------------------------------------


def test_a_folder_that_is_swapped_when_root_has_made_it_does_not_become_the_users(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root gave away whatever had its name by then: a folder of root's, or a file with several names."""
    monkeypatch.setattr(output_files, "owner_of_new", lambda: USER)
    (theirs / "roots").mkdir(mode=0o700)
    really = os.mkdir

    def swapped(name: str, mode: int, *, dir_fd: int) -> None:
        really(name, mode, dir_fd=dir_fd)
        assert os.stat(name, dir_fd=dir_fd).st_uid == NOBODY  # from the start
        os.rename(name, "away", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        os.rename("roots", name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", swapped)
    with pytest.raises(GputopError, match="cannot be made"), output_files.new_folder(str(theirs / "x")):
        pass
    assert (theirs / "x").stat().st_uid == 0


def test_what_an_export_takes_the_place_of_is_removed_with_the_users_rights(
    theirs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_files, "owner_of_new", lambda: USER)
    for folder in (theirs / "x", secret):
        folder.mkdir(exist_ok=True)
        (folder / "calls.csv").write_text("x")
    os.chown(theirs / "x", *USER)
    made = ExitStack()
    place = made.enter_context(output_files.new_folder(str(theirs / "x"), force=True, ending=".csv"))
    (theirs / "x").rename(theirs / "away")
    link(theirs / "x", secret)
    with pytest.raises(PermissionError):
        made.close()
    assert (secret / "calls.csv").exists()
    assert not Path(place).exists()


def test_no_folder_is_made_for_a_user_where_the_user_may_not(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_files, "owner_of_new", lambda: USER)
    with pytest.raises(GputopError, match="cannot be made"), output_files.new_folder(str(secret / "x")):
        pass
    assert os.listdir(secret) == []
