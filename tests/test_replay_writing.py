"""The recorder survives full disks and its own death, and writes nothing where it should not."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.source import MARK, Sample
from replay.coding.file_format import SessionError
from replay.reader import SessionReader
from replay.writer import FLUSH_NS, SessionWriter
from tests.session_data import HEADER, flat, noise, read, realistic, session, write

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: needs root")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT TESTED: no right to mount a tmpfs of 256 kB")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path) -> tuple[str, bytes]:
    """Record until it fails; the sentence and all records that were to be written."""
    writer = SessionWriter(path, HEADER)
    batches = [noise(300, number) for number in range(100)]

    def record() -> None:
        for number, batch in enumerate(batches):
            writer.write(batch)
            writer.write(Sample("mark", number, {}))

    with pytest.raises(SessionError) as caught:
        record()
    with pytest.raises(SessionError) as again:
        writer.write(noise(1))
    assert str(again.value) == str(caught.value)
    writer.close()
    writer.close()
    assert path.stat().st_size == writer.size_bytes
    return str(caught.value), b"".join(batch.tobytes() for batch in batches)


def test_a_full_disk_keeps_what_was_written(tiny_disk: Path) -> None:
    sentence, taken = fill(tiny_disk / "s")
    assert "the disk is full; the 0.3 MB written before are safe" in sentence
    replayed = b"".join(part for part in flat(read(tiny_disk / "s")) if isinstance(part, bytes))
    assert len(replayed) > 200_000
    assert taken.startswith(replayed)
    reader = SessionReader(tiny_disk / "s")
    reader.close()
    assert reader.problems[0].startswith("the recorder did not finish")


def test_a_disk_full_from_the_start_is_one_sentence(tiny_disk: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        (tiny_disk / "ballast").write_bytes(bytes(300_000))
    with pytest.raises(SessionError, match="the disk is full"):
        SessionWriter(tiny_disk / "s", HEADER)


def test_a_size_limit_keeps_what_was_written(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        sentence, taken = fill(tmp_path / "s")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "size limit (ulimit -f)" in sentence
    replayed = b"".join(part for part in flat(read(tmp_path / "s")) if isinstance(part, bytes))
    assert taken.startswith(replayed)
    assert len(replayed) > 50_000


def test_a_disk_that_fills_up_at_the_very_end_costs_only_the_index(tmp_path: Path) -> None:
    items = session(realistic(100))
    writer = SessionWriter(tmp_path / "s", HEADER)
    for item in items:
        writer.write(item)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (writer.size_bytes + 20, before[1]))
    try:
        with pytest.raises(SessionError, match="can be replayed"):
            writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.close()
    assert flat(read(tmp_path / "s")) == flat(items)


KILLED = """
import sys, time
sys.path.insert(0, {root!r})
from tests.session_data import HEADER, realistic
from probes.source import MARK, Sample
from replay.writer import SessionWriter
writer, records = SessionWriter({path!r}, HEADER), realistic(3000)
for number in range(10**6):
    writer.write(records[number % 50 * 100:][:100])
    if number % 100 == 99:
        writer.write(Sample("mark", number, {{}}))
        print(writer.events, flush=True)
        time.sleep(0.01)
"""


def test_a_killed_recorder_loses_nothing_before_its_last_mark(tmp_path: Path) -> None:
    path = tmp_path / "s"
    code = KILLED.format(root=str(Path(__file__).parents[1]), path=str(path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        marks = [int(process.stdout.readline()) for _ in range(5)]
        process.kill()
    reader = SessionReader(path)
    assert len(reader.marks) >= 5
    events = sum(len(item) for item in reader.items() if not isinstance(item, Sample))
    assert events >= marks[-1]


def test_records_reach_the_file_without_a_mark(tmp_path: Path) -> None:
    now = [0]
    writer = SessionWriter(tmp_path / "s", HEADER, clock=lambda: now[0])
    records = realistic(10)
    writer.write(records)
    assert read(tmp_path / "s") == []
    now[0] += FLUSH_NS
    writer.write(records)
    assert flat(read(tmp_path / "s")) == [records.tobytes() * 2]
    writer.write(records)
    writer.flush()
    assert flat(read(tmp_path / "s")) == [records.tobytes() * 3]
    assert writer.events == 3 * len(records)
    writer.close()
    assert writer.size_bytes == (tmp_path / "s").stat().st_size


def test_the_disk_is_told_to_keep_the_data_every_five_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fdatasync", calls.append)
    now = [0]
    writer = SessionWriter(tmp_path / "s", HEADER, clock=lambda: now[0])
    for second in range(12):
        now[0] = second * 10**9
        writer.write(Sample("mark", second, {}))
        time.sleep(0.01)
    writer.close()
    assert len(calls) == 2


def test_the_file_is_private_and_belongs_to_its_owner(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = write(tmp_path / "s", session(realistic(10)))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_old_session_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path / "s", session(realistic(100)))
    path.chmod(0o644)
    write(path, [Sample("note", 1, {})])
    assert read(path) == [Sample("note", 1, {})]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(SessionError, match="exists already, and is left as it is"):
        SessionWriter(path, HEADER, overwrite=False)
    (tmp_path / "empty").touch()
    write(tmp_path / "empty", [Sample("note", 1, {})], overwrite=False)
    (tmp_path / "thesis.txt").write_text("three years of work")
    with pytest.raises(SessionError, match="exists and is not a gputop session"):
        SessionWriter(tmp_path / "thesis.txt", HEADER)
    assert (tmp_path / "thesis.txt").read_text() == "three years of work"


def test_links_pipes_and_folders_are_refused(tmp_path: Path) -> None:
    victim = write(tmp_path / "victim", session(realistic(10)))
    content = victim.read_bytes()
    (tmp_path / "symbolic").symlink_to(victim)
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    os.link(victim, tmp_path / "hard")
    os.mkfifo(tmp_path / "fifo")
    for name, words in {
        "symbolic": "is a symbolic link",
        "dangling": "is a symbolic link",
        "hard": "several names",
        "fifo": "is not a regular file",
        "": "is not a regular file",
        "no/s": "there is no directory",
        "victim/s": "there is no directory",
    }.items():
        with pytest.raises(SessionError, match=words):
            SessionWriter(tmp_path / name, HEADER)
    assert victim.read_bytes() == content
    assert not (tmp_path / "new").exists()


def test_two_recorders_do_not_share_a_file(tmp_path: Path) -> None:
    first = SessionWriter(tmp_path / "s", HEADER)
    with pytest.raises(SessionError, match="another gputop is recording"):
        SessionWriter(tmp_path / "s", HEADER)
    first.write(Sample("note", 1, {}))
    first.close()
    assert len(read(tmp_path / "s")) == 1


@needs_root
def test_root_records_as_the_user_behind_sudo(tmp_path: Path) -> None:
    for folder in [tmp_path, *tmp_path.parents[:3]]:
        folder.chmod(folder.stat().st_mode | 0o055)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    path = write(home / "s", session(realistic(10)), owner=(NOBODY, NOBODY))
    assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)
    write(path, session(realistic(10)), owner=(NOBODY, NOBODY))
    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (NOBODY, 0o600)
    assert os.geteuid() == 0
    (tmp_path / "roots").touch()  # this thread is root again


@needs_root
def test_a_link_planted_by_the_user_leads_root_nowhere(tmp_path: Path) -> None:
    for folder in [tmp_path, *tmp_path.parents[:3]]:
        folder.chmod(folder.stat().st_mode | 0o055)
    home, secret = tmp_path / "home", tmp_path / "secret"
    home.mkdir()
    secret.mkdir(mode=0o755)
    os.chown(home, NOBODY, NOBODY)
    (home / "way").symlink_to(secret)
    with pytest.raises(SessionError, match="cannot be written"):
        SessionWriter(home / "way" / "s", HEADER, owner=(NOBODY, NOBODY))
    assert list(secret.iterdir()) == []
    path = write(secret / "s", [], owner=(NOBODY, NOBODY))
    assert path.stat().st_uid == 0, "where only root may write, the file is root's"


def test_a_closed_writer_takes_nothing(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "s", HEADER)
    writer.close()
    writer.close()
    for call in (writer.flush, lambda: writer.write(noise(1))):
        with pytest.raises(SessionError, match="closed"):
            call()


def test_what_is_no_plain_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="only plain data"):
        SessionWriter(tmp_path / "s", {"thing": object()})
    assert not (tmp_path / "s").exists()
    writer = SessionWriter(tmp_path / "s", HEADER)
    with pytest.raises(SessionError, match="only plain data"):
        writer.write(Sample("note", 1, {"thing": object()}))
    writer.write(Sample("note", 2, {}))
    writer.close()
    assert read(tmp_path / "s") == [Sample("note", 2, {})]


def test_a_recording_that_is_removed_meanwhile_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    writer = SessionWriter(folder / "x", {})
    writer.write(Sample(MARK, 1, {"number": 1}))
    shutil.rmtree(folder)
    with pytest.raises(SessionError, match="has been removed"):
        writer.write(Sample(MARK, 2, {"number": 2}))
    with pytest.raises(SessionError, match="has been removed"):
        writer.flush()
    writer.close()
