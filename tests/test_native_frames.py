"""Which file and function an address means, by what was mapped there at the time; and the line to name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gputop.checks.check_native import find, native_section
from gputop.engine.calls.source_text import read_source
from gputop.engine.calls.stack_table import Line, Stacks
from probes.code.framepointers import Caller
from probes.files import maps
from probes.files.mmap_events import Mapped
from probes.stacks import symbol_lookup
from probes.stacks.demangle import demangled
from probes.stacks.mappings import Mappings, Moment
from probes.stacks.native_frames import GAP, Frame, NativeFrames, NotYet
from tests.conftest import skip_or_fail
from tests.opened_files import functions_of

ME = os.getpid()
STATE = (7, 0)
GONE, CHILD = 1 << 22, (1 << 22) + 1  # no processes

_SOURCE = """
__attribute__((noinline, weak)) int leaf(int n) { __asm__ volatile(""); return n + 1; }
namespace some { __attribute__((noinline)) int part(int n) { return leaf(n) * 2; } }
int plain(int n) { volatile char room[256]; room[n] = 1; return some::part(n) + room[n]; }
extern "C" int call(int (*f)(int), int n) { return f(n) + plain(n); }
"""


def mapped(path: str, time_ns: int, start: int = 0x1000, pid: int = GONE) -> Mapped:
    return Mapped(pid, (start, start + 0x1000), (1, 2), path, 0, time_ns)


def heard(*found: Mapped, execs: tuple[tuple[int, int], ...] = ()) -> Mappings:
    known = Mappings(lambda _pid: None)
    known.heard(found, execs, lambda _pid: False)
    return known


def path_at(known: Mappings, time_ns: int, address: int = 0x1010, pid: int = GONE) -> str | None:
    mapping = known.find(Moment(pid, time_ns, STATE), address)
    return mapping.path if mapping else None


# -- what is mapped where ---------------------------------------------------------------------------


def test_an_address_means_what_was_mapped_there_last_before_the_time() -> None:
    known = heard(mapped("/a.so", 10), mapped("/b.so", 20))
    assert [path_at(known, time_ns) for time_ns in (9, 10, 19, 20, 99)] == [
        None,
        "/a.so",
        "/a.so",
        "/b.so",
        "/b.so",
    ]
    assert path_at(known, 99, 0x2000) is None


def test_another_program_has_none_of_the_mappings_before_it() -> None:
    known = heard(mapped("/a.so", 10), mapped("/b.so", 31, 0x5000), execs=((GONE, 30),))
    assert path_at(known, 29) == "/a.so"
    assert path_at(known, 40) is None
    assert path_at(known, 40, 0x5000) == "/b.so"


def test_a_child_has_what_its_parent_had_when_it_was_born() -> None:
    known = heard(mapped("/a.so", 10), mapped("/late.so", 30))
    known.forked(CHILD, GONE, 20)
    assert path_at(known, 40, pid=CHILD) == "/a.so"
    known.heard([mapped("/own.so", 50, pid=CHILD)], (), lambda _pid: True)
    assert path_at(known, 60, pid=CHILD) == "/own.so"


def test_what_may_have_been_replaced_unheard_is_unknown() -> None:
    known = heard(mapped("/a.so", 10), mapped("/b.so", 40, 0x5000))
    known.missed(20, 30)
    assert path_at(known, 15) == "/a.so"
    assert path_at(known, 35) is None
    assert path_at(known, 45, 0x5000) == "/b.so"


def test_a_list_read_later_counts_only_if_nothing_was_loaded_since() -> None:
    now = [STATE]
    known = Mappings(lambda _pid: now[0])
    entry = next(mapping for mapping in maps.executable(ME) if mapping.file[1])
    assert known.find(Moment(ME, 5, STATE), entry.span[0]) == entry
    now[0] = (7, 1)
    assert known.find(Moment(ME, 6, (7, 2)), entry.span[0]) is None


# -- functions --------------------------------------------------------------------------------------


def build(folder: Path, *flags: str) -> Path:
    if shutil.which("c++") is None:
        skip_or_fail("c++ not found: apt-get install g++")
    (folder / "some.cc").write_text(_SOURCE)
    target = folder / "libsome.so"
    command = ["c++", "-O2", "-shared", "-fPIC", *flags, "-o", str(target), str(folder / "some.cc")]
    subprocess.run(command, check=True)
    return target


def test_every_address_of_a_function_has_its_name_as_nm_shows_it(tmp_path: Path) -> None:
    path = build(tmp_path)
    functions = functions_of(path)
    listed = subprocess.run(
        ["nm", "-CS", "--defined-only", path], capture_output=True, text=True, check=True
    ).stdout
    rows = re.findall(r"^([0-9a-f]+) ([0-9a-f]+) [TtW] (.*)$", listed, re.MULTILINE)
    assert {name for _, _, name in rows} >= {"some::part(int)", "plain(int)", "call"}
    for begin, size, name in ((int(row[0], 16), int(row[1], 16), row[2]) for row in rows):
        found = functions.function(begin)
        assert found is not None
        assert found == functions.function(begin + size - 1)
        assert (demangled(found[0]), found[1]) == (name, begin)
    functions.close()


@pytest.mark.parametrize("flags", [("-fno-omit-frame-pointer",), ("-fomit-frame-pointer",), ()])
def test_where_a_frame_pointer_leads_to_the_caller_is_what_readelf_reads(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    """Of a library that keeps frame pointers, of one that does not, and of this machine's C library."""
    path = build(tmp_path, *flags) if flags else _libc()
    command = ["readelf", "-wN", "--debug-dump=frames-interp", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    functions, answers = functions_of(path), {Caller.NEXT: 0, Caller.UNKNOWN: 0, Caller.NONE: 0}
    for block in text.split("\n\n")[:1500]:
        lines = [line for line in block.splitlines() if not line.startswith("<")]
        head = next((row for row, line in enumerate(lines) if "LOC" in line), None)
        if head is None or " FDE " not in lines[head - 1] or "LOC" not in lines[head]:
            continue
        columns = lines[head].split()
        for line in lines[head + 1 :]:
            row = dict(zip(columns, line.split(), strict=False))
            keeps = row["CFA"] == "rbp+16" and row.get("rbp") == "c-16"
            expected = Caller.NONE if row["ra"] == "u" else Caller.NEXT if keeps else Caller.UNKNOWN
            assert functions.caller(int(row["LOC"], 16), None) is expected, block
            answers[expected] += 1
    functions.close()
    assert answers[Caller.UNKNOWN] > 0
    assert (answers[Caller.NEXT] > 0) == (flags != ("-fomit-frame-pointer",))


def _libc() -> Path:
    return next(Path(one.path) for one in maps.executable(ME) if re.search(r"/libc[.-][^/]*$", one.path))


def test_a_file_that_has_changed_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbol_lookup, "FRESH_S", 0.0)
    path = build(tmp_path)
    functions = functions_of(path)
    ((begin, _),) = [
        (row, name)
        for row in range(0x1000, 0x1300)
        if (name := functions.function(row)) and name[0] == "call"
    ][:1]
    entry = Mapped(ME, (0, 0x10000), (path.stat().st_dev, path.stat().st_ino), str(path), 0, 1)
    known = heard(entry)
    native = NativeFrames(known)
    moment = Moment(ME, 2, STATE)

    def frames() -> tuple[Frame, ...]:
        while True:
            try:
                return native.frames(moment, [begin], interrupted=True, under_python=False)
            except NotYet:
                native.wait(1.0)

    assert frames() == ((str(path), 0, "call"), GAP)
    path.write_bytes(b"")
    assert frames() == (GAP,)
    native.close()
    functions.close()


def test_names_that_are_not_of_c_plus_plus_stay_as_they_are() -> None:
    assert demangled("_ZN4work5alphaEi") == "work::alpha(int)"
    assert demangled("_Z") == "_Z"
    assert demangled("copy_pages") == "copy_pages"
    assert demangled("_ZN4wo\0rk") == "_ZN4wo\0rk"


# -- the line to name ---------------------------------------------------------------------------------

PROGRAM = Line("/home/a/train", 0, "step+0x41")
CUBLAS = Line("/opt/x/libcublas.so.12", 0, "cublasSgemm+0x1a")
LIBC = Line("/usr/lib/x86_64-linux-gnu/libc.so.6", 0, "libc.so.6+0x2724a")
PYTHON = Line("/home/a/train.py", 7, "step")
INSTALLED = Line("/x/lib/python3.12/site-packages/torch/cuda.py", 1, "synchronize")


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([CUBLAS, PROGRAM, LIBC], PROGRAM),
        ([CUBLAS, GAP], CUBLAS),
        ([CUBLAS, PROGRAM, GAP, INSTALLED, PYTHON], PYTHON),
        ([CUBLAS, PROGRAM, GAP, INSTALLED], PROGRAM),
        ([CUBLAS, GAP, INSTALLED], INSTALLED),
        ([GAP], None),
    ],
)
def test_the_line_is_the_innermost_of_the_users_own_python_else_own_code(
    frames: list[Line | tuple[str, int, str]], named: Line | None
) -> None:
    stacks = Stacks()
    rows = [[one.file, one.line, one.function] if isinstance(one, Line) else [*one] for one in frames]
    stacks.consume({"stack": [9], "frames": [rows]})
    assert stacks.line(9) == named


def test_native_code_is_reported_by_function_and_library() -> None:
    assert PROGRAM.text() == "step+0x41 in train"
    assert PROGRAM.brief == "step+0x41"
    assert PROGRAM.full_text() == f"step+0x41 in {PROGRAM.file}"
    assert LIBC.text() == LIBC.full_text() == "libc.so.6+0x2724a"
    assert PYTHON.text() == "train.py:7 in step()"
    assert PYTHON.brief == "train.py:7"
    assert PYTHON.full_text() == f"{PYTHON.file}:7 in step()"
    assert "native code" in read_source(PROGRAM, None).problem


# -- gputop check --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-fno-omit-frame-pointer",), "and their callers"),
        (("-fomit-frame-pointer",), "its callers seldom"),
        (("-s",), "stripped: offsets only"),
    ],
)
def test_check_says_what_is_known_of_a_program(flags: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int pause(void); int main(void) { pause(); return 0; }")
    command = ["cc", "-O2", *flags, "-o", str(tmp_path / "idle"), str(tmp_path / "main.c")]
    subprocess.run(command, check=True)
    with subprocess.Popen([tmp_path / "idle"]) as idle:
        (fact,) = native_section(find([ME, idle.pid])).facts
        idle.kill()
    assert fact.text.startswith(str(tmp_path / "idle"))
    assert said in fact.text
