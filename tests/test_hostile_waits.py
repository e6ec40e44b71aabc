"""Nobody hides others' libraries by files that are slow, by reads that hang, or by stopping who reads."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from probes import api
from probes.code import elf, libraries, parsing, reader_child, sites
from probes.code.elf import SYMBOL
from probes.code.libraries import Target
from probes.files import file_reader, untrusted_files
from probes.files.abandoned_files import ENOUGH, FIRST_S, LONGEST_S, AbandonedFiles
from probes.files.mmap_events import Mapped
from probes.process import users
from tests import hostile_elf
from tests.hanging_files import WHEN_OPENED, WHEN_READ
from tests.hostile_files import RUNTIME, in_time
from tests.opened_files import elf_of, probes_of
from tests.rootless_support import NOBODY, as_nobody

MANY = 100_000
SEGMENTS = 512
DENSE = (
    b"\xeb\x80" * 32_768,
    b"\xe8\x00\x00\x00\xff" * 13_107,
    b"\x0f\x80\x00\x00\x00\xff" * 10_922,
    b"\x70\x80\x0f\x80\x80\xff\xff\xff" * 8_192,
)


def target_at(path: Path) -> Target:
    status = path.stat()
    return Target(path, str(path), (status.st_dev, status.st_ino), api.RUNTIME, 12)


def probes_by_the_child(target: Target) -> int:
    """How many functions would be probed. Raises OSError."""
    with untrusted_files.opened(target.path, target.identity) as file:
        return len(parsing.probes_of(target, file)[0])


def of_many_segments(path: Path, segments: int) -> Path:
    """Many functions, and only the last segment holds them."""
    names = b"\0" + b"".join(b"f%d\0" % number for number in range(MANY))
    hostile_elf.write(path, symbols=MANY, segments=segments, names=names)
    data = bytearray(path.read_bytes())
    for number in range(segments - 1):
        struct.pack_into("<Q", data, 64 + number * 56 + 32, 0)  # bytes in the file
    at = 64 + segments * 56
    rows = [len(name) + 1 for name in names.split(b"\0")[:-1]]
    table = bytearray(data[at : at + MANY * SYMBOL.itemsize])
    place = 0
    for number in range(MANY):
        place += rows[number]
        struct.pack_into("<I", table, number * SYMBOL.itemsize, place)
    data[at : at + len(table)] = table
    path.write_bytes(data)
    return path


def cpu_s(path: Path) -> float:
    """To read its functions."""
    began = time.process_time()
    assert len(elf_of(path).functions) == MANY
    return time.process_time() - began


# -- files that take long -----------------------------------------------------------------------------


@pytest.mark.slow
def test_many_segments_take_no_longer_than_one(tmp_path: Path) -> None:
    few, many = (of_many_segments(tmp_path / str(count), count) for count in (1, SEGMENTS))
    assert min(cpu_s(many) for _ in range(3)) < 2 * min(cpu_s(few) for _ in range(3))


def test_a_place_in_the_file_is_of_the_first_segment_that_holds_it(tmp_path: Path) -> None:
    """Whether one is asked for or many; segments overlap, are empty, or reach behind the last address."""
    path = hostile_elf.write(tmp_path / "x", symbols=1, segments=5)
    data = bytearray(path.read_bytes())
    spans = ((0x1000, 0x3000, 0x2000), (0x0, 0x2000, 0x2000), (0x500, 0x2500, 0), (1 << 62, 1 << 63, 1 << 63))
    for number, (offset, start, size) in enumerate((*spans, (0x10, (1 << 64) - 0x20, 0x40))):
        struct.pack_into("<QQQQ", data, 64 + number * 56 + 8, offset, start, 0, size)
    path.write_bytes(data)
    with untrusted_files.opened(path) as file:
        image = elf.Image(file)
        asked = [0, 0x1FFF, 0x2000, 0x2FFF, 0x3000, 0x3FFF, 0x4000, 0x4FFF, 0x5000, 1 << 63, (1 << 64) - 0x20]
        one_by_one = [image.file_offset(address) for address in asked]
        found = image.file_offsets(np.array(asked, np.uint64)).tolist()
    plain = [-1 if place is None or place >= 1 << 62 else place for place in one_by_one]
    assert found == plain
    assert found[2:6] == [0, 0xFFF, 0x1000, 0x1FFF]


@pytest.mark.parametrize("body", DENSE)
def test_a_function_that_is_all_jumps_is_probed_at_its_first_instruction(body: bytes) -> None:
    code = (b"\x48\x89\xc0\x55" + body)[: sites.CODE_LIMIT]
    began = time.process_time()
    assert sites.choose(code).offset in (0, 3)
    assert time.process_time() - began < 0.02, "four hundred of these are one file"
    assert sites.choose(b"\x48\x89\xc0\x55" + bytes(64)).offset == 3


def test_aliases_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = b"\0" + b"".join(name.encode() + b"\0" for name in api.NAMES)
    path = hostile_elf.write(tmp_path / RUNTIME, symbols=len(names), names=names, name_at=None)
    data = bytearray(path.read_bytes())
    at = 64 + 56
    for number in range(len(names)):  # all of them one function
        struct.pack_into("<Q", data, at + number * SYMBOL.itemsize + 8, 8)
    path.write_bytes(data)
    looked: list[bytes] = []
    choose = sites.choose
    monkeypatch.setattr(sites, "choose", lambda code: (looked.append(code), choose(code))[1])
    assert len(probes_of(target_at(path))) == 1
    assert len(looked) == 1


@pytest.fixture
def slow_child(monkeypatch: pytest.MonkeyPatch) -> Iterator[file_reader.Reader]:
    """A child that computes for ever over a library of three symbols."""
    parse = libraries.probes_of

    def computes(library: Target, file: untrusted_files.File) -> object:
        found = parse(library, file)
        while found[1].build_id == "" and len(found[1].functions) == 3:
            pass
        return found

    monkeypatch.setattr(libraries, "probes_of", computes)
    yield file_reader.start(reader_child)
    file_reader.stop()


@pytest.mark.slow
def test_files_that_take_long_to_compute_are_left_out_alone(
    slow_child: file_reader.Reader, tmp_path: Path
) -> None:
    """As it was attacked: some files of one user, and no library of that file system was traced any more."""
    names = b"\0cudaMalloc\0cudaFree\0cudaMemcpy\0"
    for number in range(ENOUGH + 1):
        path = hostile_elf.write(tmp_path / f"{number}-{RUNTIME}", symbols=3, names=names, name_at=None)
        data = bytearray(path.read_bytes())
        for row, place in enumerate((1, 12, 21)):
            struct.pack_into("<I", data, 64 + 56 + row * SYMBOL.itemsize, place)
        path.write_bytes(data)
        with pytest.raises(OSError, match=r"of computing|within 2 s"):
            probes_by_the_child(target_at(path))
    victim = hostile_elf.write(tmp_path / "victim", symbols=1, names=b"\0cudaMalloc\0")
    assert probes_by_the_child(target_at(victim)) == 1
    told = [*slow_child.problems]
    assert len(told) == ENOUGH + 1
    assert all(f"-{RUNTIME} is left out: " in text for text in told)


# -- who reads is stopped -----------------------------------------------------------------------------


def test_who_reads_is_stopped_and_another_one_answers(child: file_reader.Reader, tmp_path: Path) -> None:
    path = hostile_elf.write(tmp_path / RUNTIME, symbols=1, names=b"\0cudaMalloc\0")
    for _ in range(ENOUGH + 1):
        assert in_time(lambda: probes_by_the_child(target_at(path))) == 1
        os.kill(child.pid, signal.SIGSTOP)
    assert in_time(lambda: probes_by_the_child(target_at(path))) == 1
    assert not child.problems


def test_what_a_process_is_about_is_seen() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeps:
        os.kill(sleeps.pid, signal.SIGSTOP)
        until = time.monotonic() + 10
        while file_reader.at_work(sleeps.pid)[0] != "T":
            assert time.monotonic() < until
        sleeps.kill()
    assert file_reader.at_work(sleeps.pid) == ("X", 0.0)
    began = time.process_time()
    while time.process_time() - began < 0.1:
        pass
    state, cpu = file_reader.at_work(os.getpid())
    assert state == "R"
    assert cpu >= 0.1


# -- reads that hang ----------------------------------------------------------------------------------


def test_reads_that_hang_count_for_whose_files_they_are(child: file_reader.Reader, tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    for inode in range(ENOUGH):
        child.abandon((device, inode), NOBODY, f"/home/them/{inode}", file_reader.TOO_SLOW, hangs=True)
    own, theirs = (
        hostile_elf.write(tmp_path / name, symbols=1, names=b"\0cudaMalloc\0") for name in ("own", "theirs")
    )
    assert probes_by_the_child(target_at(own)) == 1
    child.owners[target_at(theirs).identity] = NOBODY
    with pytest.raises(OSError, match="other files of its owner"):
        probes_by_the_child(target_at(theirs))
    assert f"{theirs} is left out for now" in child.problems[-1], "which one is said"


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: becomes another user")
def test_a_lookup_that_hangs_on_its_way_counts_for_who_mapped_the_file(
    child: file_reader.Reader, hanging: Path, tmp_path: Path
) -> None:
    """The file lies where everybody's do, behind a file system that somebody laid over its folder."""
    status = tmp_path.stat()
    with subprocess.Popen([*as_nobody(), "sleep", "600"]) as theirs:
        try:
            for number in range(ENOUGH):
                file = (status.st_dev, status.st_ino + 1_000_000 + number)
                mapped = Mapped(theirs.pid, (4096, 8192), file, str(hanging / WHEN_OPENED))
                assert in_time(lambda mapped=mapped: [libraries.file_of(mapped)]) == [None]
            path = hostile_elf.write(tmp_path / RUNTIME, symbols=1, names=b"\0cudaMalloc\0")
            mine = Mapped(os.getpid(), (4096, 8192), target_at(path).identity, str(path))
            assert libraries.file_of(mine) is not None
            assert probes_by_the_child(target_at(path)) == 1
        finally:
            theirs.kill()


def test_what_answers_again_is_read_again(child: file_reader.Reader, hanging: Path) -> None:
    """Not before its time is over, and then without a new start of gputop."""
    now = 0.0
    child.abandoned.clock = lambda: now
    found = target_at(hanging / WHEN_READ)
    for _ in range(2):
        with pytest.raises(OSError, match="could not be read within"):
            probes_by_the_child(found)
    assert not child.abandoned.is_due()
    now = FIRST_S + 1
    assert child.abandoned.is_due()
    assert not child.abandoned.is_due(), "once"
    assert child.abandoned.refusal(found.identity, 0, "it") is None


def test_the_pause_doubles_up_to_an_hour_and_ends_with_an_answer() -> None:
    now, told = 0.0, list[str]()
    given_up = AbandonedFiles(told.append, lambda: now)
    for _ in range(10):
        given_up.add((1, 1), 5, "/x", "slow", hangs=True)
        assert given_up.refusal((1, 1), 5, "/x") == "slow"
        now += FIRST_S - 1
        assert given_up.refusal((1, 1), 5, "/x") == "slow"
        now += LONGEST_S
    assert given_up.refusal((1, 1), 5, "/x") is None
    assert [text for text in told if "/x" in text] == [told[0]], "told once"
    for inode in range(ENOUGH):
        given_up.add((1, inode), 5, f"/{inode}", "slow", hangs=True)
    assert given_up.refusal((1, 99), 5, "/99")
    assert given_up.refusal((1, 99), 6, "/99") is None
    assert given_up.refusal((2, 99), 5, "/99") is None
    given_up.answered((1, 0), 5)
    assert given_up.refusal((1, 99), 5, "/99") is None


def test_of_one_owner_some_files_are_named_and_what_is_remembered_is_bounded() -> None:
    told: list[str] = []
    given_up = AbandonedFiles(told.append, lambda: 0.0)
    for inode in range(10_000):
        given_up.add((inode, inode), inode, "/x", "slow", hangs=True)
    assert len(given_up.files) <= 4096
    assert len(given_up.hung) <= 4097
    told.clear()
    for inode in range(ENOUGH):
        given_up.add((1, inode), 5, f"/{inode}", "slow", hangs=True)
    told.clear()
    for inode in range(1000):
        given_up.refusal((1, 100 + inode), 5, f"/{inode}")
    assert len(told) == 9
    assert "not named" in told[-1]


# -- whose a process is -------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: becomes another user")
def test_whose_a_process_is_stays_with_a_program_that_runs_as_root() -> None:
    runs = f"import os, time; os.setresuid({NOBODY}, 0, 0); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", runs], stdout=subprocess.PIPE) as theirs:
        try:
            assert theirs.stdout is not None
            assert theirs.stdout.readline() == b"\n"
            assert os.stat(f"/proc/{theirs.pid}").st_uid == 0
            assert users.of(theirs.pid) == NOBODY
        finally:
            theirs.kill()
    assert users.of(theirs.pid) == users.GONE


def test_user_ids_that_one_user_was_given_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "subuid"
    given.write_text("anna:100000:65536\nnonsense\nben:x:1\nben:165536:65536\n")
    monkeypatch.setattr(users, "SUBORDINATE", given)
    users.subordinate_ranges.cache_clear()
    try:
        asked = (0, 1000, 99_999, 100_000, 165_535, 165_536, 231_072)
        assert [users.one_of(user) for user in asked] == [0, 1000, 99_999, 100_000, 100_000, 165_536, 231_072]
        given.unlink()
        users.subordinate_ranges.cache_clear()
        assert users.one_of(100_001) == 100_001
    finally:
        users.subordinate_ranges.cache_clear()
