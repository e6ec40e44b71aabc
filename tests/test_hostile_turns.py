"""A user who maps new libraries without end delays nobody else's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from probes.code import libraries
from probes.code.libraries import Target
from probes.ebpf.attacher import Attached
from probes.ebpf.quota import FEW
from probes.files import shared_pages, untrusted_files
from probes.files.mmap_events import Mapped
from probes.files.shared_pages import SharedPages
from probes.files.untrusted_files import File, FileIdentity
from probes.observe.fair_queue import MOST_WAITING, Turns
from probes.observe.scanner import AT_ONCE, MOST_OF_ONE_USER, Scanner
from probes.process import privileges, users
from probes.process.privileges import Capability
from probes.source import PROBLEM, Sample

USERS = 24
FILES = 64
VICTIM = 1_000_000


class Attaches:
    """Stands for what attaches: remembers what it was given, and when."""

    def __init__(self) -> None:
        self.given: list[Target] = []
        self.refusals: list[str] = []
        self.put_off: set[tuple[int, int]] = set()

    def attach(self, targets: object) -> list[Attached]:
        self.given += targets  # type: ignore[operator]
        return []


@pytest.fixture
def attaches() -> Attaches:
    return Attaches()


@pytest.fixture
def scanner(attaches: Attaches, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scanner]:
    """One for whose processes are those of users by their numbers: process 1,000 times the user, and more."""
    monkeypatch.setattr(users, "of", lambda pid: pid // 1000)
    monkeypatch.setattr(privileges, "held", lambda: frozenset(Capability))
    made = Scanner(attaches, None, lambda _pid: True, lambda: (), lambda _sample: None, everyone=True)  # type: ignore[arg-type]
    yield made
    made.pages.close()


def mapped(folder: Path, user: int, count: int, content: bytes = b"x" * 8192) -> list[Mapped]:
    """So many new files that a process of a user has mapped, all of one length."""
    found = []
    for number in range(count):
        path = folder / f"libcudart.so.12.{user}.{number}"
        path.write_bytes(content)
        status = path.stat()
        found.append(Mapped(user * 1000, (4096, 8192), (status.st_dev, status.st_ino), str(path)))
    return found


def paths(attaches: Attaches) -> list[str]:
    return [target.shown for target in attaches.given]


def test_who_comes_last_waits_for_one_turn_of_each_other_user(
    scanner: Scanner, attaches: Attaches, tmp_path: Path
) -> None:
    flood = [one for user in range(1, USERS + 1) for one in mapped(tmp_path, user, FILES)]
    (victims,) = mapped(tmp_path, VICTIM, 1)
    scanner.notice([*flood, victims])
    scanner.work(60.0)
    found = paths(attaches)
    assert found.index(victims.path) <= USERS * AT_ONCE
    assert len(found) == USERS * FILES + 1, "and everybody comes"


def test_who_has_had_a_long_turn_waits_for_the_others(
    scanner: Scanner, attaches: Attaches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file may take two seconds: of the next ones others' go first."""
    slow, quick = mapped(tmp_path, 1, 40), mapped(tmp_path, 2, 40)
    reach = libraries.reach

    def slowly(mapping: Mapped) -> Target | None:
        if mapping.pid == 1000:
            time.sleep(0.01)
        return reach(mapping)

    monkeypatch.setattr(libraries, "reach", slowly)
    scanner.notice([*slow, *quick])
    scanner.work(60.0)
    found = paths(attaches)
    assert found.index(quick[-1].path) < found.index(slow[2 * AT_ONCE].path)


def test_what_comes_while_a_flood_is_looked_at_is_heard_soon(
    scanner: Scanner, attaches: Attaches, tmp_path: Path
) -> None:
    scanner.notice([one for user in range(1, 4) for one in mapped(tmp_path, user, FILES)])
    scanner.work(0.0)
    assert len(paths(attaches)) <= AT_ONCE, "a slice of work"
    (victims,) = mapped(tmp_path, VICTIM, 1)
    scanner.notice([victims])
    while victims.path not in paths(attaches):
        scanner.work(0.0)
    assert len(paths(attaches)) <= 4 * AT_ONCE + 1


def test_of_a_user_with_too_many_nothing_more_is_even_opened(
    scanner: Scanner, attaches: Attaches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Sample] = []
    scanner.quota.report = lambda text: told.append(Sample(PROBLEM, 0, {"text": text}))
    reached: list[str] = []
    reach = libraries.reach
    monkeypatch.setattr(libraries, "reach", lambda one: (reached.append(one.path), reach(one))[1])
    many = mapped(tmp_path, 1, 3 * MOST_OF_ONE_USER)
    scanner.notice(many)
    scanner.work(60.0)
    assert len(attaches.given) == MOST_OF_ONE_USER
    assert len(reached) == MOST_OF_ONE_USER
    (victims,) = mapped(tmp_path, VICTIM, 1)
    scanner.notice([victims])
    scanner.work(60.0)
    assert victims.path in paths(attaches)
    assert [sample.kind for sample in told] == [PROBLEM]


def test_what_could_not_be_read_in_time_is_tried_again(
    scanner: Scanner, attaches: Attaches, tmp_path: Path
) -> None:
    (late,) = mapped(tmp_path, 1, 1)
    scanner.notice([late])
    attaches.put_off.add(late.file)
    scanner.work(60.0)
    assert paths(attaches) == [late.path]
    scanner.notice([late])
    scanner.work(60.0)
    assert paths(attaches) == [late.path] * 2, "and counts once"
    assert scanner.quota.used[1] == 1
    scanner.notice([late])
    scanner.work(60.0)
    assert paths(attaches) == [late.path] * 2


# -- files of one length ------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which files are looked at by their pages."""
    looked: list[int] = []
    look = SharedPages.look

    def seen(self: SharedPages, file: File) -> tuple[int, int | None]:
        looked.append(file.identity[1])
        return look(self, file)

    monkeypatch.setattr(SharedPages, "look", seen)
    return looked


def opened(path: Path, device: int, content: bytes) -> File:
    """A file that says to be of a device."""
    path.write_bytes(content)
    status = path.stat()
    facts = FileIdentity((device, status.st_ino), status.st_size, status.st_uid)
    return File(os.open(path, os.O_RDONLY), facts)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: page frames are shown to root")
def test_files_of_one_length_are_looked_at_once_each_unless_they_begin_alike(
    tmp_path: Path, looks: list[int]
) -> None:
    """Else each new one costs a look at all before it."""
    count = 40
    known = SharedPages()
    for number in range(count):
        content = number.to_bytes(2, "little") * 4096
        with opened(tmp_path / str(number), number, content) as file:
            assert known.original(file) is None
    assert len(looks) <= 2 * count
    looks.clear()
    for number in range(count):
        with opened(tmp_path / f"same-{number}", 99, b"s" * 8192) as file:
            assert known.original(file) is None
    assert len(looks) <= count, "of one device none can be another one's"
    looks.clear()
    for number in range(200):
        with opened(tmp_path / f"copy-{number}", 1000 + number, b"s" * 8192) as file:
            known.original(file)
    assert max(map(looks.count, set(looks))) <= 200
    assert len(looks) <= 200 * (shared_pages.MOST_LOOKED_AT + 2)
    known.close()


# -- the queue ----------------------------------------------------------------------------------------


def test_of_one_user_so_much_waits_and_what_is_lost_is_found_when_the_rest_is_done() -> None:
    turns: Turns[int] = Turns()
    for number in range(MOST_WAITING + 5):
        turns.put(1, number)
    turns.put(2, 0)
    assert len(turns) == MOST_WAITING + 1
    lost = []
    while (taken := turns.pop()) is not None:
        lost.append((taken[0], turns.charge(taken[0], 1.0)))
    assert [one for one in lost if one[1]] == [lost[-1]] == [(1, True)]
    assert lost[1][0] == 2
    assert not turns


def test_so_many_users_have_a_queue_and_what_is_done_takes_no_memory() -> None:
    turns: Turns[int] = Turns()
    for user in range(10_000):
        turns.put(user, user)
    assert len(turns.waiting) <= 1025
    while (taken := turns.pop()) is not None:
        turns.charge(taken[0], 1.0)
    assert not turns.waiting
    assert not turns.had_s
    assert not turns.overrun


# -- programs that come and go ------------------------------------------------------------------------


class Holds(Attaches):
    """Also keeps what it was given open, as what attaches does."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[int, int], tuple[Target, File]] = {}

    def attach(self, targets: object) -> list[Attached]:
        for target in targets:  # type: ignore[attr-defined]
            file = untrusted_files.opened(target.path, target.identity)
            self.held[target.identity] = target, file
        return []

    def files(self) -> list[tuple[Target, File]]:
        return [*self.held.values()]

    def release(self, identities: Iterable[tuple[int, int]]) -> None:
        for identity in identities:
            self.held.pop(identity)[1].close()


@pytest.mark.mainly("removed")
@pytest.mark.parametrize("left", ["removed", "still there"])
def test_libraries_that_came_and_went_take_nothing(
    left: str, scanner: Scanner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day of builds and containers: each had its libraries, and what no process maps is let go of."""
    holds = Holds()
    monkeypatch.setattr("probes.ebpf.quota.FEW", 0)
    scanner.attachments = holds  # type: ignore[assignment]
    alive: list[Mapped] = []
    monkeypatch.setattr(libraries, "mappings", lambda _pids, _also: iter(alive))
    kept = mapped(tmp_path, 1, 2)
    scanner.notice(kept)
    scanner.work(60.0)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3 * MOST_OF_ONE_USER):
        folder = tmp_path / str(number)
        folder.mkdir()
        (one,) = mapped(folder, 1, 1, content=number.to_bytes(2, "little") * 4096)
        scanner.notice([one])
        scanner.work(60.0)
        assert one.file in holds.held, "there is room for each"
        alive[:] = [one, *kept]
        if left == "removed":
            os.unlink(one.path)
        scanner.sweep()
        assert one.file in holds.held, "it is mapped"
        alive[:] = kept
        scanner.sweep()
        assert one.file not in holds.held
    assert set(holds.held) == {one.file for one in kept}
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(scanner.identities) == 2
    assert scanner.quota.used[1] == 2
    for _target, file in holds.files():
        file.close()


def test_a_few_libraries_stay_probed_for_the_next_program(
    scanner: Scanner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = Holds()
    scanner.attachments = holds  # type: ignore[assignment]
    monkeypatch.setattr(libraries, "mappings", lambda _pids, _also: iter(()))
    for number in range(3 * FEW):
        (folder := tmp_path / str(number)).mkdir()
        last = mapped(folder, 1, 1, content=number.to_bytes(2, "little") * 4096)
        scanner.notice(last)
        scanner.work(60.0)
        scanner.sweep()
        assert len(holds.held) <= FEW + 1
    assert last[0].file in holds.held
    monkeypatch.setattr("probes.ebpf.quota.FEW", 0)
    monkeypatch.setattr(privileges, "held", frozenset)
    scanner.sweep()
    assert holds.held, "whose mappings cannot be read may map it"
    for _target, file in holds.files():
        file.close()


def test_one_file_in_container_after_container_counts_once(
    scanner: Scanner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shows it under a device of its own: those of ended ones keep nobody out."""
    alive: list[Mapped] = []
    monkeypatch.setattr(libraries, "mappings", lambda _pids, _also: iter(alive))
    monkeypatch.setattr(scanner.pages, "original", lambda file: file.identity)
    monkeypatch.setattr(scanner.attachments, "files", list, raising=False)
    monkeypatch.setattr(scanner.attachments, "release", list, raising=False)
    for number in range(3 * MOST_OF_ONE_USER):
        (folder := tmp_path / str(number)).mkdir()
        alive[:] = mapped(folder, 1, 1)
        scanner.notice(alive)
        scanner.work(60.0)
        assert alive[0].file in scanner.identities, "there is room for each"
        scanner.sweep()
    assert len(scanner.aliases) <= FEW + 1
