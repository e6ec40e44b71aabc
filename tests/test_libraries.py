"""Which file a process has mapped, which functions of it are probed, and what is looked at when."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probes.code import libraries, parsing
from probes.code.libraries import Runtime, Target
from probes.files import mmap_events, untrusted_files
from probes.files.mmap_events import Mapped
from probes.files.untrusted_files import File
from probes.observe import scanner
from probes.source import NOTE, PROBLEM, Sample
from tests.opened_files import identity_of, probes_of
from tests.simgpu_programs import cuda_toolkit
from tests.waiting import HANGS_S, wait_until

PROGRAMS = Path(__file__).resolve().parent / "ebpf" / "programs"
RUNTIME = "libcudart.so.12"
ME = os.getpid()


def file(path: Path) -> Path:
    """Some file under a library's name; what is in it does not matter here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 5000)
    return path


@contextmanager
def mapping(path: Path) -> Iterator[Mapped]:
    """This process maps a file; what /proc says of that."""
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ):
        (found,) = [entry for entry in libraries.mappings([ME]) if entry.path.startswith(str(path))]
        yield found


def test_a_mapped_library_is_reached_by_its_own_path(tmp_path: Path) -> None:
    path = file(tmp_path / RUNTIME)
    with mapping(path) as entry:
        assert libraries.reach(entry) == Target(path, str(path), identity_of(path), "runtime", 12)


def test_a_replaced_library_is_never_mistaken_for_the_new_one(tmp_path: Path) -> None:
    path = file(tmp_path / RUNTIME)
    old = identity_of(path)
    with mapping(path):
        file(tmp_path / "new" / "library").rename(path)
        (entry,) = [found for found in libraries.mappings([ME]) if found.path.startswith(str(path))]
        target = libraries.reach(entry)
    assert entry.path == f"{path} (deleted)"
    if os.geteuid() == 0:
        assert target is not None
        assert (target.identity, target.layer, target.major) == (old, "runtime", 12)
    else:
        assert target is None, "map_files is not for everybody"


def test_another_file_under_the_path_of_a_mapping_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path / RUNTIME)
    elsewhere = Mapped(ME, (4096, 8192), (identity_of(path)[0], identity_of(path)[1] + 1), str(path))
    assert libraries.reach(elsewhere) is None


def test_a_file_whose_device_stat_shows_otherwise_is_reached_all_the_same(tmp_path: Path) -> None:
    """As on overlayfs and btrfs: the kernel's mappings name another device than stat(2)."""
    path = file(tmp_path / RUNTIME)
    with mapping(path) as entry:
        other = Mapped(ME, entry.span, (entry.file[0] + 1, entry.file[1]), entry.path)
        target = libraries.reach(other)
    assert target is not None
    assert target.identity == identity_of(path)
    if os.geteuid() == 0:
        assert target.path.match(f"/proc/{ME}/map_files/*"), "the mapping itself"


def test_a_record_of_a_mapping_is_read_as_the_manual_page_lays_it_out() -> None:
    """perf_event_open(2), PERF_RECORD_MMAP2."""
    name = b"/lib/libcuda.so.1\0" + b"\0" * 6
    header = struct.pack("<IHH", 10, 2, 72 + len(name))
    body = struct.pack("<IIQQQ", 77, 78, 0x7F0000001000, 0x2000, 0x3000)
    file_part = struct.pack("<IIQQ", 254, 3, 4711, 9) + struct.pack("<II", 5, 2)
    record = mmap_events.parse(header + body + file_part + name + struct.pack("<Q", 1_000_000_007))
    span, file = (0x7F0000001000, 0x7F0000003000), (os.makedev(254, 3), 4711)
    assert record == Mapped(77, span, file, "/lib/libcuda.so.1", 0x3000, 1_000_000_007)


# -- programs with the runtime inside ---------------------------------------------------------------


def compile_static(folder: Path, *inputs: str) -> Path:
    program = folder / "program"
    command = ["cc", "-O1", "-pthread", "-o", str(program), *inputs, "-ldl", "-lrt"]
    subprocess.run(command, check=True, capture_output=True)
    return program


def stripped(program: Path) -> Path:
    subprocess.run(["strip", "-o", program.with_name("stripped"), program], check=True)
    return program.with_name("stripped")


def looked_into(path: Path) -> Runtime:
    target = libraries.program(path)
    assert target is not None
    return parsing.linked_runtime(target)


def test_a_runtime_inside_a_program_is_found_by_its_symbols_or_else_by_its_texts(tmp_path: Path) -> None:
    program = compile_static(tmp_path, str(PROGRAMS / "static_runtime.c"))
    assert looked_into(program) is Runtime.VISIBLE
    assert looked_into(stripped(program)) is Runtime.STRIPPED
    assert looked_into(Path(sys.executable)) is Runtime.ABSENT
    assert libraries.program(tmp_path / "none") is None


@pytest.mark.parametrize("major", [12, 13])
def test_nvidias_static_runtime_is_probed_as_its_shared_one_is(tmp_path: Path, major: int) -> None:
    """The same functions with the same places of their arguments, which differ between 12 and 13."""
    shared = cuda_toolkit.real_runtime(major)
    main = tmp_path / "main.c"
    main.write_text(
        "const char *cudaGetErrorName(int); int main(void) { return cudaGetErrorName(0) == 0; }\n"
    )
    archives = [shared.with_name(name) for name in ("libcudart_static.a", "libculibos.a")]
    if not archives[0].exists():
        cuda_toolkit.missing(str(archives[0]))
    program = compile_static(tmp_path, str(main), *(str(path) for path in archives if path.exists()))
    target, library = libraries.program(program), libraries.target(shared)
    assert target is not None
    assert library is not None
    inside = {probe.symbol: probe.cookie for probe in probes_of(target)}
    assert inside == {probe.symbol: probe.cookie for probe in probes_of(library)}
    assert len(inside) > 90
    assert looked_into(stripped(program)) is Runtime.STRIPPED


# -- the scanner ------------------------------------------------------------------------------------


class Attaching:
    """In place of ``probes.ebpf.attacher.Attachments``: keeps what it was asked to attach to."""

    refusals: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.targets: list[Target] = []
        self.put_off: set[tuple[int, int]] = set()

    def attach(self, targets: Iterable[Target]) -> list[object]:
        self.targets += targets
        return []


class Events:
    """In place of the kernel's records: one answer after another."""

    def __init__(self, *answers: tuple[list[Mapped], bool]) -> None:
        self.answers = [*answers]

    def wait(self, _seconds: float) -> tuple[list[Mapped], bool]:
        time.sleep(0.001)
        return self.answers.pop(0) if self.answers else ([], False)

    def close(self) -> None:
        pass


@contextmanager
def scanning(
    monkeypatch: pytest.MonkeyPatch, events: Events | OSError, *, wanted: bool = True
) -> Iterator[tuple[Attaching, list[Sample]]]:
    """A scanner at work on this process alone."""

    def make(_cpus: int, _hears: object) -> Events:
        if isinstance(events, OSError):
            raise events
        return events

    monkeypatch.setattr(scanner, "MmapEvents", make)
    monkeypatch.setattr(scanner, "POLL_S", 0.02)
    monkeypatch.setattr(libraries, "all_pids", lambda: [ME])
    attaching, told, stop = Attaching(), list[Sample](), threading.Event()
    subject = scanner.Scanner(
        attaching,  # type: ignore[arg-type]
        None,
        lambda _pid: wanted,
        lambda: [ME],
        told.append,
        everyone=True,
    )
    subject.begin(1, [], None)
    thread = threading.Thread(target=subject.run, args=(stop,))
    thread.start()
    try:
        yield attaching, told
    finally:
        stop.set()
        thread.join(timeout=HANGS_S)


def attached(attaching: Attaching, path: Path, seconds: float = 60) -> bool:
    """Whether a file is attached to within that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if identity_of(path) in [target.identity for target in attaching.targets]:
            return True
        time.sleep(0.01)
    return False


def test_without_perf_events_maps_are_polled_and_this_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path / RUNTIME)
    refusal = PermissionError(errno.EACCES, "Permission denied")
    with scanning(monkeypatch, refusal) as (attaching, told):
        assert not attached(attaching, path, 0.1)
        with mapping(path):
            assert attached(attaching, path)
    assert [(sample.kind, "Permission denied" in sample.data["text"]) for sample in told] == [(NOTE, True)]


def test_when_the_kernel_lost_records_all_maps_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path / RUNTIME)
    events = Events()
    with scanning(monkeypatch, events) as (attaching, _), mapping(path):
        assert not attached(attaching, path, 0.1), "nobody said so"
        events.answers.append(([], True))
        assert attached(attaching, path)


@pytest.mark.skipif(os.geteuid() != 0, reason="map_files is not for everybody")
@pytest.mark.parametrize("by_a_child", [False, True])
def test_a_file_that_is_taken_away_between_two_looks_is_reached_by_its_mapping(
    by_a_child: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if by_a_child:  # which remembers where files lie
        request.getfixturevalue("child")
    path = file(tmp_path / RUNTIME)
    it, events, opened = identity_of(path), Events(), untrusted_files.opened

    def late(place: Path | str, wanted: tuple[int, int] | None = None) -> File:
        if wanted == it:
            path.unlink(missing_ok=True)
        return opened(place, wanted)

    monkeypatch.setattr(untrusted_files, "opened", late)
    with scanning(monkeypatch, events) as (attaching, told), mapping(path) as entry:
        events.answers.append(([entry], False))
        wait_until(lambda: it in [target.identity for target in attaching.targets], "it is attached to")
    assert not [sample for sample in told if sample.kind != NOTE]


def test_a_mapping_of_a_process_that_is_not_watched_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path / RUNTIME)
    for wanted in (True, False):
        events = Events()
        with scanning(monkeypatch, events, wanted=wanted) as (attaching, _), mapping(path) as entry:
            events.answers.append(([entry], False))
            assert attached(attaching, path, 5 if wanted else 0.2) is wanted


def test_a_file_mapped_by_many_is_attached_to_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path / RUNTIME)
    link = Path(shutil.copy(path, tmp_path / "libnccl.so.2"))
    events = Events()
    with scanning(monkeypatch, events) as (attaching, _), mapping(path) as first, mapping(link) as second:
        events.answers += [([first], False), ([first, first], False), ([second], False)]
        assert attached(attaching, link)
    mine = [
        target for target in attaching.targets if target.identity in (identity_of(path), identity_of(link))
    ]
    assert [target.shown for target in mine] == [str(path), str(link)]


def test_a_file_that_went_away_with_its_process_is_attached_to_when_another_maps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path / RUNTIME)
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone = Target(Path(f"/proc/{ended.pid}/root{path}"), str(path), identity_of(path), "runtime", 12)
    there = Target(Path(f"/proc/{ME}/root{path}"), str(path), identity_of(path), "runtime", 12)
    found = [gone, there]
    entry = Mapped(ME, (4096, 8192), identity_of(path), str(path))
    events = Events()
    with scanning(monkeypatch, events) as (attaching, _):
        monkeypatch.setattr(libraries, "reach", lambda _mapping: found.pop(0))
        events.answers.append(([entry], False))
        assert not attached(attaching, path, 0.2)
        events.answers.append(([entry], False))
        assert attached(attaching, path)


class Refusing(Attaching):
    """Refuses each file."""

    def attach(self, targets: Iterable[Target]) -> list[object]:
        for target in targets:
            self.targets.append(target)
            self.refusals = (*self.refusals, f"{target.shown} cannot be probed")
        return []


def test_a_refusal_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path / RUNTIME)
    events = Events()
    monkeypatch.setattr(sys.modules[__name__], "Attaching", Refusing)
    with scanning(monkeypatch, events) as (attaching, told), mapping(path) as entry:
        events.answers += [([entry], False), ([entry], False)]
        assert attached(attaching, path)
    problems = [
        text for sample in told if sample.kind == PROBLEM and str(path) in (text := sample.data["text"])
    ]
    assert problems == [f"{path} cannot be probed"]
