"""Which interpreters gputop can read lines of, and what `gputop check` says of the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.checks import check_python
from gputop.checks.fact import NOTE, OK
from probes.code import elf, interpreter, libraries
from probes.code.layout import LAYOUTS, NO_FRAME
from probes.files import maps, untrusted_files
from probes.stacks import line_tracker
from tests.ebpf import interpreters
from tests.opened_files import interpreter_of
from tests.waiting import HANGS_S

VERSION, FREE_THREADED = (
    10,
    16,
)  # places in what 3.13 and later say of themselves: of the minor version's byte


def library(minor: int) -> Path:
    found = interpreters.library(minor)
    if found is None:
        interpreters.skip_without(minor, f"libpython3.{minor}")
    return found


def problem(path: Path, shown: str = "") -> str:
    read = interpreter_of(path, shown)
    assert read is not None
    return read.problem


@contextmanager
def running(program: Path, **env: str) -> Iterator[int]:
    """A process of this program, which waits for its input."""
    process = subprocess.Popen([program], stdin=subprocess.PIPE, env=os.environ | env)
    try:
        while os.path.realpath(program) not in {mapping.path for mapping in maps.executable(process.pid)}:
            time.sleep(0.01)  # exec has begun, and the program is not there yet
        yield process.pid
    finally:
        process.communicate(timeout=HANGS_S)


def found(pid: int) -> tuple[str, str]:
    """(status, text) of the one line that check has for a process."""
    (fact,) = check_python.python_section(check_python.find([pid], {})).facts
    assert bool(fact.fix) == (fact.status == NOTE), "what is not known has a next step"
    return fact.status, fact.text


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", sorted(LAYOUTS))
def test_the_offsets_are_those_that_the_file_itself_shows(minor: int) -> None:
    """Where it does, from 3.13 on; the table was compiled from the headers."""
    read = interpreter_of(library(minor))
    assert read is not None
    assert read.layout == LAYOUTS[minor]
    assert read.problem == ""


def test_an_old_version_is_named(tmp_path: Path) -> None:
    assert problem(library(9)) == f"CPython 3.9 is not known: 3.10 to 3.{max(LAYOUTS)} are"


def saying(minor: int, place: int, said: bytes, copy: Path, symbol: str = "_PyRuntime") -> Path:
    """A copy of its library that has other bytes there, by default in what it says of itself."""
    shutil.copy(library(minor), copy)
    with untrusted_files.opened(copy) as opened:
        image = elf.Image(opened)
        start = image.file_offset(image.objects([symbol])[symbol].address)
    assert start is not None
    with copy.open("r+b") as file:
        file.seek(start + place)
        file.write(said)
    return copy


def test_a_build_without_the_gil_that_was_not_tried_is_refused(tmp_path: Path) -> None:
    copy = saying(15, FREE_THREADED, b"\1", tmp_path / "libpython3.15t.so.1.0")
    assert problem(copy) == "CPython 3.15 without the GIL is not known"


@pytest.mark.parametrize(("minor", "copy"), [(13, NO_FRAME), (14, 72)])
def test_without_the_gil_objects_are_longer_and_threads_have_bytecode_of_their_own(
    minor: int, copy: int
) -> None:
    """The offsets that are not reported were compiled from each version's headers with Py_GIL_DISABLED."""
    found = interpreters.interpreter(f"{minor}t")
    if found is None:
        pytest.skip(f"no Python 3.{minor}t in the user's cache: scripts/free_threaded.sh builds it")
    read = interpreter_of(Path(found))
    assert read is not None
    assert read.problem == ""
    layout, usual = read.layout, LAYOUTS[minor]
    assert layout is not None
    assert (layout.key, layout.interpreters, layout.threads) == (usual.key, usual.interpreters, usual.threads)
    assert (layout.head, layout.ascii, layout.compact, layout.copy) == (16, 56, 72, copy)
    assert layout.first_traceable - usual.first_traceable == layout.filename - usual.filename == 16
    assert layout.kind == {13: 2, 14: 8}[minor]


def test_what_an_interpreter_says_of_itself_is_read_as_its_version_has_it(tmp_path: Path) -> None:
    copy = saying(13, VERSION, b"\16", tmp_path / "libpython3.13.so.1.0")
    assert problem(copy) == "it identifies as CPython 3.14"


def test_a_build_that_reaches_its_threads_state_in_another_way_is_refused(tmp_path: Path) -> None:
    returns_nothing = b"\x31\xc0\xc3"
    copy = tmp_path / "libpython3.15.so.1.0"
    problem_of_it = problem(saying(15, 0, returns_nothing, copy, "PyGILState_GetThisThreadState"))
    assert problem_of_it == "where its threads keep their state is not found in its code"


def test_pypy_is_none_of_ours() -> None:
    assert "PyPy" in problem(Path("/bin/true"), "/opt/pypy/bin/pypy3.10")
    assert interpreter.may_be("libpypy3.10-c.so")


def test_what_is_no_interpreter_and_what_is_damaged(tmp_path: Path) -> None:
    assert interpreter_of(Path("/bin/true")) is None
    damaged = tmp_path / "python3"
    damaged.write_bytes(Path("/bin/true").read_bytes()[:200])
    with pytest.raises(elf.ElfError):
        interpreter_of(damaged)


# -- processes -----------------------------------------------------------------------------------


def test_this_process() -> None:
    (one,) = check_python.find([os.getpid()], {})
    assert one.found.version == sys.version_info[:2]
    assert one.pids == (), "gputop itself is no process of interest"


def test_a_program_that_is_only_called_like_one(tmp_path: Path) -> None:
    copy = tmp_path / "python3.12"
    shutil.copy("/bin/cat", copy)
    with running(copy) as pid:
        status, text = found(pid)
    assert status == NOTE
    assert text == f"{copy} (in process {pid}): lines are not known: {check_python.HIDDEN}"


def test_a_chosen_program_that_has_another_name() -> None:
    with running(Path("/bin/cat")) as pid:
        assert list(line_tracker.candidates(pid)) == []
        assert [Path(one.path).name for one in line_tracker.candidates(pid, chosen=True)] == ["cat"]
        assert check_python.find([pid], {}) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="the file of a mapping is root's to open")
def test_an_interpreter_whose_file_is_gone_is_read_all_the_same(tmp_path: Path) -> None:
    copy = tmp_path / "libpython3.12.so.1.0"
    shutil.copy(library(12), copy)
    with running(Path("/bin/cat"), LD_PRELOAD=str(copy)) as pid:
        while not any(line_tracker.candidates(pid)):
            time.sleep(0.01)
        copy.unlink()
        status, text = found(pid)
    assert status == OK
    assert str(copy) in text


def test_without_the_right_to_open_it_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "python3"
    shutil.copy("/bin/cat", copy)
    monkeypatch.setattr(libraries, "file_of", lambda mapping: None)
    with running(copy) as pid:
        status, text = found(pid)
    assert (status, check_python.GONE in text) == (NOTE, True)


def test_many_processes_are_counted() -> None:
    one = interpreter.Interpreter("python3", (3, 12))
    (fact,) = check_python.python_section([check_python.Python(one, (5, 7, 9, 11, 13))]).facts
    assert fact.text == "python3 (CPython 3.12, in process 5, 7, 9 and 2 more): lines of slow calls are known"
