"""What a process is, and says of itself in /proc and in its memory, takes gputop neither time nor memory."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest

from probes import schema
from probes.code import libraries, parsing
from probes.code.interpreter import Interpreter
from probes.code.layout import LAYOUTS
from probes.code.thread_states import NoSlotError, NotYetError
from probes.files import maps
from probes.files.mmap_events import Mapped
from probes.proc import open_files, procfs
from probes.proc.late_attach import Latecomers
from probes.proc.sockets import ACCEPTED, Sockets
from probes.schema import ALIASED, Kind
from probes.stacks.mappings import Mappings
from tests.fuzz import interpreter_memory
from tests.waiting import until_good
from tests.yardstick import turn_s

ME = os.getpid()
PAGE = mmap.PAGESIZE
MIB = 1 << 20
MOST_TURNS = 60_000_000  # of an empty loop of Python: half a second

# argument 1: how many pages of a file (argument 2) are mapped; 3: their protection; 4: a library above them
MAPS = """
import ctypes, mmap, sys
count, path, rights = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
file = open(path, "rb")
size = (count + 1) * mmap.PAGESIZE
base = libc.mmap(None, size, 0, 0x4022, -1, 0)
for page in range(count):  # each begins at the file's beginning: they stay apart
    where = base + page * mmap.PAGESIZE
    assert libc.mmap(where, mmap.PAGESIZE, rights, 0x12, file.fileno(), 0) == where
if len(sys.argv) > 4:
    library = open(sys.argv[4], "rb")
    libc.mmap(base + size - mmap.PAGESIZE, mmap.PAGESIZE, 5, 0x12, library.fileno(), 0)
print(flush=True)
input()
"""


@contextmanager
def waiting(*arguments: str) -> Iterator[int]:
    """A program of these arguments that has said that it is there."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def most_taken(action: Callable[[], object]) -> int:
    """The most memory that Python held at a time because of this, in bytes."""
    gc.collect()
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def page(tmp_path: Path) -> str:
    """A file of one page."""
    path = tmp_path / "file"
    path.write_bytes(bytes(PAGE))
    return str(path)


@pytest.fixture(autouse=True)
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "reported_pids", set())
    maps.cut_pids.clear()


def test_of_a_long_command_line_the_beginning_is_read() -> None:
    with waiting("print(flush=True); input()", *["x" * 100_000] * 19) as pid:
        assert most_taken(lambda: procfs.process_facts(pid)) < 1.25 * MIB
        facts = procfs.process_facts(pid)
    assert facts is not None
    assert len(facts["command"]) == 4096


def test_an_environment_of_a_million_variables_is_not_cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        monkeypatch.setenv(f"LONG_{number}", "x\n" * 50_000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    with waiting("print(flush=True); input()") as pid:
        facts = procfs.process_facts(pid)
    assert facts is not None
    assert facts["cuda_visible_devices"] == "2,3"
    assert facts["cuda_device_order"] is None
    found = procfs.variable_of(b"\0" * (1 << 20) + b"A=1\0B=\0C=" + b"x" * 9999, b"C")
    assert found is not None
    assert len(found) == 4096
    assert most_taken(lambda: procfs.variable_of(b"\0" * (1 << 20), b"CUDA_VISIBLE_DEVICES")) < 4 * MIB


def test_a_process_with_very_many_mappings_takes_little_memory(page: str) -> None:
    with waiting(MAPS, "60000", page, str(mmap.PROT_READ | mmap.PROT_EXEC)) as pid:
        found: list[Mapped] = []
        assert most_taken(lambda: found.extend(maps.executable(pid))) < 4 * MIB
        assert len(found) == maps.MOST_MAPPINGS
        assert list(maps.cut()) == [pid]
        maps.executable(pid)
        assert list(maps.cut()) == [], "it is told once"


def test_a_library_above_very_many_mappings_is_found(page: str, tmp_path: Path) -> None:
    library = tmp_path / "libcudart.so.12"
    library.write_bytes(bytes(PAGE))
    with waiting(MAPS, "60000", page, str(mmap.PROT_READ), str(library)) as pid:
        assert [mapping.path for mapping in libraries.mappings((pid,))] == [str(library)]
    assert list(maps.cut()) == []


def test_more_mappings_than_a_kernel_allows_are_read_in_part(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "MOST_LINES", 100)
    with waiting(MAPS, "200", page, str(mmap.PROT_READ | mmap.PROT_EXEC)) as pid:
        assert 0 < len(maps.executable(pid)) <= 100
        assert list(maps.cut()) == [pid]
        monkeypatch.setattr(maps, "MOST_BYTES", 1000)
        assert 0 < len(maps.executable(pid)) < 20


def test_a_path_longer_than_any_that_can_be_opened_is_left_out(tmp_path: Path) -> None:
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(40):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        Path("libcudart.so.12").write_bytes(bytes(PAGE))
        with open("libcudart.so.12", "rb") as file, mmap.mmap(file.fileno(), 0, prot=5):
            found = list(libraries.mappings((ME,)))
    finally:
        os.chdir(before)
    assert found == []
    assert list(maps.cut()) == [ME]


@pytest.mark.slow
def test_what_is_kept_of_the_mappings_of_many_processes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.stacks.mappings.MOST_KEPT", 10_000, raising=False)
    kept = Mappings(lambda _pid: None)
    for pid in range(1, 60):
        many = [Mapped(pid, (at, at + 1), (1, 1), "/lib", 0, at + 1) for at in range(2000)]
        kept.heard(many, (), lambda _pid: True)
    del many
    assert sum(isinstance(one, Mapped) for one in gc.get_objects()) < 20_000


class Memory:
    """Numbers in this process that another Python could have put there."""

    def __init__(self, words: int) -> None:
        self.words = (ctypes.c_uint64 * words)()
        self.base = ctypes.addressof(self.words)

    def put(self, offset: int, value: int) -> None:
        struct.pack_into("<Q", self.words, offset, value)


def look(memory: Memory) -> float:
    """How many turns of a loop of Python it takes to see that there is no place of threads' states in it."""
    subject = Interpreter.__new__(Interpreter)
    values = {"layout": LAYOUTS[11], "free_offset": 0, "code_free": 0, "runtime": 0, "code_type": 0}
    for name, value in values.items():
        object.__setattr__(subject, name, value)
    begun = time.process_time()
    with pytest.raises((NoSlotError, NotYetError)):
        parsing.threads_of(ME, subject, Mapped(ME, (memory.base, memory.base + 1), (0, 0), "/python3"))
    return (time.process_time() - begun) / turn_s()


@pytest.mark.parametrize("states", [1, 2, 4000, 100_000])
def test_lists_of_threads_that_do_not_end_take_little_time(states: int) -> None:
    layout, size, interpreter, first = LAYOUTS[11], 256, 2048, 4096
    memory = Memory((first + states * size) // 8 + 1024)
    nothing = memory.base + first + states * size + 1024  # no state is kept there
    memory.put(layout.interpreters, memory.base + interpreter)
    memory.put(interpreter + layout.threads, memory.base + first)
    memory.put(interpreter + layout.next_interpreter, memory.base + interpreter)
    for number in range(states):
        place = first + number * size
        memory.put(place + 8, memory.base + first + (number + 1) % states * size)
        memory.put(place + layout.thread_id, nothing)
    assert until_good(lambda: look(memory), lambda turns: turns < MOST_TURNS) < MOST_TURNS


def test_sockets_of_one_network_are_read_once_and_long_tables_in_part(tmp_path: Path) -> None:
    row = "{0}: 0100007F:{1:04X} 0100007F:0050 01 0:0 0:0 0 0 0 {0} 1 0\n"
    listens = "0: 0100007F:0007 00000000:0000 0A 0:0 0:0 0 0 0 5 1 0\n"
    many = "".join(row.format(number, 7 + number % 3) for number in range(100_000))
    for folder in ("ns", "net"):
        (tmp_path / "1" / folder).mkdir(parents=True)
    for name in ("ns/net", "net/tcp", "net/tcp6", "net/unix"):
        (tmp_path / "1" / name).write_text("head\n" + listens + many)

    def ask() -> float:
        """Returns how many turns two hundred questions cost, of some 30,000 rows."""
        sockets, begun = Sockets(tmp_path), time.process_time()
        accepted = [number for number in range(10, 210) if sockets.kind(1, number) == ACCEPTED]
        spent = time.process_time() - begun
        assert accepted == list(range(12, 210, 3))
        return spent / turn_s()

    assert until_good(ask, lambda turns: turns < MOST_TURNS) < MOST_TURNS


def test_a_mark_does_not_wait_for_descriptors_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_pid: int, _descriptor: int, _sockets: object = None) -> str:
        time.sleep(0.015)
        return "pipe"

    monkeypatch.setattr(open_files, "kind_of", slow)
    files = open_files.OpenFiles("x86_64")
    made = schema.empty(150)
    made["kind"], made["pid"] = Kind.OFFCPU, ME
    made.view(ALIASED)["argument"] = range(150)
    files.notice(made)
    nobody = np.zeros(0, schema.THREAD_STATE_DTYPE)
    asked = [len(sample.data["fd"]) for mark in range(3) for sample in files.samples(nobody, mark)]
    assert len(asked) == 3, "the rest is asked for at the next marks"
    assert sum(asked) < 20


def test_threads_of_a_process_that_has_very_many_are_seldom_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    took_ns = []

    def slow(_pid: int) -> list[int]:
        begun = time.monotonic_ns()
        time.sleep(0.02)
        took_ns.append(time.monotonic_ns() - begun)
        return [1, 2]

    late_ones = Latecomers()
    monkeypatch.setattr(procfs, "process_facts", lambda pid: {"pid": pid, "parent_pid": 0, "start_ns": 0})
    late_ones.add(ME + 1)
    monkeypatch.setattr(procfs, "threads", slow)
    states = np.zeros(0, schema.THREAD_STATE_DTYPE)
    every_ns, marks, begun = 100_000_000, 0, time.monotonic_ns()
    while len(took_ns) < 5:
        list(late_ones.samples(states, marks * every_ns))
        marks += 1
    passed_ns = (marks - 1) * every_ns  # by the marks, between the first look and the last
    assert passed_ns >= 20 * sum(took_ns[:-1])
    assert passed_ns <= 20 * (time.monotonic_ns() - begun) + 4 * every_ns


def test_a_list_of_mappings_that_is_not_as_linux_writes_it_is_read_as_far_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = "7f00-7f01 r-xp 00001000 08:01 7 /lib/libcuda.so.1"
    lines = [
        good.replace(old, new)
        for old, new in (("7f00-", ""), ("00001000", "x"), ("08:01", "8"), (" 7 ", " - "))
    ]
    monkeypatch.setattr(maps, "lines_of", lambda _pid: iter([*lines, good]))
    (found,) = maps.executable(ME)
    assert (found.span, found.offset, found.file[1]) == ((0x7F00, 0x7F01), 0x1000, 7)
    assert list(maps.cut()) == [ME]


def test_an_interpreter_that_lies_at_no_address_is_not_found() -> None:
    said = msgpack.unpackb(interpreter_memory.TARGET.seeds()[0])
    said["file"]["code_type"] = (1 << 64) - 1
    interpreter_memory.TARGET.run(msgpack.packb(said), Path("/nowhere"))
