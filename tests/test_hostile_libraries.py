"""However many libraries somebody maps, gputop keeps descriptors for itself, says so and goes on."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from probes import api
from probes.code.libraries import Target
from probes.ebpf import attach_perf
from probes.ebpf.attacher import Attached
from probes.observe.scanner import MOST_OF_ONE_USER, Scanner
from probes.source import PROBLEM, Sample
from tests.waiting import HANGS_S

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to somebody else, which only root can")


class Attaches:
    """Stands for what attaches: remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[Target] = []
        self.refusals: list[str] = []
        self.put_off: set[tuple[int, int]] = set()

    def attach(self, targets: object) -> list[Attached]:
        self.given += targets  # type: ignore[operator]
        return []


def scanning(attaches: Attaches, told: list[Sample] | None = None) -> Scanner:
    """A scanner of all processes that gives what it finds to ``attaches``."""
    tell = (told if told is not None else []).append
    return Scanner(attaches, None, lambda _pid: True, lambda: (), tell, everyone=True)  # type: ignore[arg-type]


def libraries_of(owner: int, count: int, folder: Path) -> list[Target]:
    """So many files that are called like libraries, no two with the same beginning."""
    made = []
    for number in range(count):
        path = folder / f"libcudart.so.12.{owner}.{number}"
        path.write_bytes(number.to_bytes(2, "little") * 4096)
        os.chown(path, owner, owner)
        status = path.stat()
        made.append(Target(path, str(path), (status.st_dev, status.st_ino), api.RUNTIME, 12))
    return made


@as_root
def test_of_one_user_so_many_libraries_are_probed_and_others_are_not_hindered(tmp_path: Path) -> None:
    """Whoever says to own them: a file system of that user's may say that they are root's."""
    told: list[Sample] = []
    attaches = Attaches()
    scanner = scanning(attaches, told)
    before = len(os.listdir("/proc/self/fd"))
    scanner.attach(libraries_of(NOBODY, 50, tmp_path), NOBODY)
    scanner.attach(libraries_of(0, 50, tmp_path), NOBODY)
    assert len(attaches.given) == MOST_OF_ONE_USER
    scanner.attach(libraries_of(NOBODY - 1, 3, tmp_path), NOBODY - 1)
    scanner.attach(libraries_of(1, 70, tmp_path), 0)
    assert len(attaches.given) == MOST_OF_ONE_USER + 3 + 70
    (one,) = told
    assert one.kind == PROBLEM
    assert f"programs of user {NOBODY} map" in one.data["text"]
    assert len(os.listdir("/proc/self/fd")) - before <= len(attaches.given)
    scanner.pages.close()


def test_files_that_are_remembered_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.observe.scanner.MOST_FILES", 10)
    attaches = Attaches()
    scanner = scanning(attaches)
    scanner.attach(libraries_of(os.geteuid(), 30, tmp_path))
    assert len(scanner.identities) <= 10
    scanner.pages.close()


def test_descriptors_are_kept_for_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    own = len(os.listdir("/proc/self/fd"))
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (own + 50, own + 300))
    monkeypatch.setattr("resource.setrlimit", lambda _, pair: limits.append(pair))
    assert attach_perf.allow_descriptors(100)
    assert limits == [(own + 300, own + 300)], "the limit is raised as far as it may be"
    assert not attach_perf.allow_descriptors(280), "the rest is kept"


WITHOUT = """
import os, resource, sys
import numpy as np
from probes import schema
from probes.proc import procfs
from probes.proc.gpu_clients import GpuClients
from probes.proc.open_files import OpenFiles
from probes.proc.roster import Roster
from probes.schema import Kind
own, roster, files = procfs.OwnUse(), Roster(), OpenFiles("x86_64")
own.sample()
born = schema.empty(1)
born["kind"], born["pid"], born["tid"] = Kind.JOIN, os.getppid(), os.getppid()
list(roster.notice(born))
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    open("/dev/null")
except OSError as error:
    assert error.errno == 24
states = np.zeros(0, schema.THREAD_STATE_DTYPE)
ended = [sample for sample in roster.facts(states, 1) if sample.data.get("exited_ns")]
assert not ended, ended
assert own.sample()[1] > 1 << 20
assert not list(files.samples(states, 1)) and not list(GpuClients().samples(None, (), 1))
print("went on")
"""


def test_without_descriptors_marks_go_on_and_nobody_seems_to_have_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False, timeout=HANGS_S
    )
    assert done.stdout == "went on\n", done.stderr


def test_a_library_that_no_descriptor_is_left_for_is_not_mistaken_for_one_that_has_gone(
    tmp_path: Path,
) -> None:
    (target,) = libraries_of(os.geteuid(), 1, tmp_path)
    moved = Target(Path(f"/proc/self/root{target.path}"), target.shown, target.identity, api.RUNTIME, 12)
    attaches = Attaches()
    scanner = scanning(attaches)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files") as caught:
            scanner.attach([moved])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.errno == errno.EMFILE
    scanner.attach([moved])
    assert len(attaches.given) == 1, "it is tried again"
    scanner.pages.close()
