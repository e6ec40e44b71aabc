"""No file and no memory of others is read by gputop's own process: what hangs, is endless or is damaged costs
one sentence, and what is asked next is answered.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gputop.checks import check_libraries as checked
from gputop.checks import check_native as programs
from gputop.checks import check_python as pythons
from gputop.checks import selfhit
from gputop.engine.calls.source_text import SourceFile, read_source
from gputop.engine.calls.stack_table import Line
from gputop.simgpu import ensure_built
from probes.code import elf, libraries, parsing
from probes.code.framepointers import Caller
from probes.code.libraries import Target
from probes.files import file_reader, maps, untrusted_files
from probes.files.mmap_events import Mapped
from probes.files.shared_pages import SharedPages
from probes.proc.procfs import descendants
from probes.stacks.symbol_lookup import Answer, Lookups, NotYet
from tests import hostile_elf
from tests.hanging_files import ANSWERS, WHEN_CLOSED, WHEN_READ, stalled
from tests.hostile_files import PATIENCE_S, RUNTIME, device, in_time, pipe
from tests.opened_files import identity_of

pytestmark = pytest.mark.usefixtures("child")
ME = os.getpid()
MEMORY_BYTES = 100 << 20  # this process may grow by: what reads is another one


# -- who asks ---------------------------------------------------------------------------------------


def functions_at(path: Path) -> object:
    """Frames of native code: what is at two places of a file."""
    entry = Mapped(ME, (0, 1 << 20), identity_of(path), str(path), 0, 1)
    lookups = Lookups()
    found = []
    for place in ((0x10, True), (0x200, False)):
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                found.append(lookups.lookup(entry, place))
                break
            except NotYet:
                assert time.monotonic() < until
                lookups.wait(1.0)
    lookups.close()
    return found


def known_again(path: Path) -> object:
    """The key of a file: the page of its beginning."""
    pages = SharedPages()
    try:
        with untrusted_files.opened(path, identity_of(path)) as file:
            return [pages.original(file), pages.original(file)]
    except OSError as error:
        return error.strerror
    finally:
        pages.close()


def library_of_the_check(path: Path) -> object:
    return checked.look(Target(path, str(path), identity_of(path), "runtime", 12)).error


def interpreter_of_the_check(path: Path) -> object:
    return pythons.interpreter_file({}, identity_of(path), path, str(path)).read


def program_of_the_check(path: Path) -> object:
    try:
        with untrusted_files.opened(path, identity_of(path)) as file:
            return parsing.names_in(file, str(path))
    except (OSError, elf.ElfError) as error:
        return str(error)


def call_of_the_check(path: Path) -> object:
    return selfhit.call(path, "cudaRuntimeGetVersion", identity=identity_of(path)).error


def source_of_the_screen(path: Path) -> object:
    return read_source(Line(str(path), 1, "step"), ME)


ASKING = (
    functions_at,
    known_again,
    library_of_the_check,
    interpreter_of_the_check,
    program_of_the_check,
    call_of_the_check,
    source_of_the_screen,
)

# -- what they meet ---------------------------------------------------------------------------------


def endless(path: Path) -> Path:
    """Sixteen terabytes that cost their owner nothing."""
    return hostile_elf.write(path, symbols=10, claimed=6 << 30, padding=1 << 43)


def six_gigabytes(path: Path) -> Path:
    """Five megabytes that say that they are far more."""
    return hostile_elf.write(path, symbols=90_000, names=b"\0" + b"x" * (3 << 20) + b"\0", name_at=None)


def cyclic(path: Path) -> Path:
    """Frames whose descriptions lead into each other, in a file whose segments are the whole of it."""
    return hostile_elf.write(path, symbols=100, segments=500)


def no_library(path: Path) -> Path:
    path.write_bytes(os.urandom(1 << 16))
    return path


FILES = (pipe, device, endless, six_gigabytes, cyclic, no_library)


@dataclass
class Opens:
    """What this process opens while it is watched, but for its own and the kernel's."""

    paths: list[str]
    watching: bool = False


_opens = Opens([])


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _opens.watching and event == "open" and not int(arguments[2] or 0) & os.O_PATH:  # type: ignore[call-overload]
        _opens.paths.append(str(arguments[0]))


sys.addaudithook(_hear)


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("asks", ASKING, ids=lambda one: one.__name__)
@pytest.mark.mainly(  # each who asks, and each file
    "functions_at-pipe",
    "known_again-device",
    "library_of_the_check-endless",
    "interpreter_of_the_check-six_gigabytes",
    "program_of_the_check-cyclic",
    "call_of_the_check-no_library",
    "source_of_the_screen-pipe",
)
def test_a_hostile_file_costs_a_sentence_and_this_process_never_opens_it(
    asks: Callable[[Path], object], file: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = file(tmp_path / "libcudart.so.12")
    held = _memory()
    _opens.paths.clear()
    _opens.watching = True
    try:
        in_time(lambda: asks(path))
    finally:
        _opens.watching = False
    assert not [name for name in _opens.paths if str(path) in name or name.startswith("/proc/self/fd/")]
    assert _memory() - held < MEMORY_BYTES
    assert parsing_works(), "what is asked next is answered"


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def parsing_works() -> bool:
    found = libraries.target(ensure_built() / RUNTIME)
    assert found is not None
    with untrusted_files.opened(found.path, found.identity) as file:
        return bool(parsing.probes_of(found, file)[0])


@pytest.mark.parametrize("asks", ASKING, ids=lambda one: one.__name__)
@pytest.mark.mainly("functions_at", "call_of_the_check", "source_of_the_screen")
def test_a_file_that_is_cut_while_it_is_read_ends_nobody(
    asks: Callable[[Path], object], tmp_path: Path
) -> None:
    path = hostile_elf.write(tmp_path / RUNTIME, symbols=300_000, names=b"\0cudaMalloc\0")
    length = path.stat().st_size
    done = threading.Event()

    def cut() -> None:
        while not done.is_set():
            os.truncate(path, 0)
            os.truncate(path, length)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        for _ in range(3):
            in_time(lambda: asks(path))
    finally:
        done.set()
        thread.join()
    assert parsing_works()


@pytest.mark.parametrize("asks", ASKING, ids=lambda one: one.__name__)
def test_a_file_that_hangs_when_it_is_read_is_given_up_reported_once_and_the_next_one_is_read(
    asks: Callable[[Path], object], hanging: Path, child: file_reader.Reader
) -> None:
    if asks is known_again:
        pytest.skip("a file that nobody has the length of is not looked at")
    in_time(lambda: asks(hanging / WHEN_READ))
    in_time(lambda: asks(hanging / WHEN_READ))
    assert [WHEN_READ in text and "left out" in text for text in child.problems] in ([True], [])
    assert parsing_works()


def test_a_file_that_never_answers_that_it_is_closed_keeps_nobody_waiting(hanging: Path) -> None:
    """Who closes what was opened for reading waits for its file system: here only a place is held."""
    path = hanging / WHEN_CLOSED

    def opens_and_closes() -> str:
        with untrusted_files.opened(path, identity_of(path)) as file:
            parsing.functions_in(file, ["cudaMalloc"], str(path))
        return "closed"

    assert in_time(opens_and_closes) == "closed"


def test_a_file_system_that_stops_answering_later_keeps_nobody_waiting(hanging: Path) -> None:
    paths = [hanging / ANSWERS, hanging / WHEN_CLOSED]  # of one length: their pages are compared
    identities = [identity_of(path) for path in paths]
    pages = SharedPages()

    def looks() -> str:
        files = [
            untrusted_files.opened(path, identity) for path, identity in zip(paths, identities, strict=True)
        ]
        stalled.set()
        for file in files:
            assert file.owner == 0
            assert pages.original(file) is None
            file.close()
        pages.close()
        return "done"

    assert in_time(looks) == "done"


def test_functions_are_those_that_this_process_would_read() -> None:
    mapping = next(one for one in maps.executable(ME) if "/libc" in one.path)
    with untrusted_files.placed(mapping.path) as place, untrusted_files.reading(place.descriptor) as file:
        begins = sorted(set(elf.read(file).functions.values()))[::40]
    asked = _all(mapping, begins)
    file_reader.stop()
    assert asked == _all(mapping, begins)
    assert sum(one is not None and bool(one[0]) for one in asked) > len(begins) / 2


def _all(mapping: Mapped, places: list[int]) -> list[Answer]:
    lookups = Lookups()
    found: list[Answer] = []
    for offset in places:
        while True:
            try:
                found.append(lookups.lookup(mapping, (offset + 1, True)))
                break
            except NotYet:
                lookups.wait(5.0)
    lookups.close()
    return found


def test_who_keeps_the_functions_of_a_file_has_no_rights_and_ends_with_its_file(
    child: file_reader.Reader,
) -> None:
    path = next(one for one in maps.executable(ME) if "/libc" in one.path)
    before = descendants((child.pid,))  # itself, and who answers what was asked before this test
    lookups = Lookups()
    while True:
        try:
            lookups.lookup(path, (0x30000, True))
            break
        except NotYet:
            lookups.wait(5.0)
    until = time.monotonic() + PATIENCE_S
    while len(workers := descendants((child.pid,)) - before) != 1:  # who begins is two for a moment
        assert time.monotonic() < until, "not one process that answers"
        time.sleep(0.02)
    (worker,) = workers
    lines = (line.partition(":") for line in Path(f"/proc/{worker}/status").read_text().splitlines())
    said = {key: value.split() for key, _, value in lines}
    if os.geteuid() == 0:
        assert said["Uid"] == ["65534"] * 4
    assert (said["CapPrm"], said["NoNewPrivs"], said["Seccomp"]) == (["0" * 16], ["1"], ["2"])
    os.kill(worker, 9)
    answer = in_time(lambda: _all(path, [0x30000]))
    assert answer, "another process answers"
    lookups.close()
    until = time.monotonic() + PATIENCE_S
    while descendants((child.pid,)) - before:
        assert time.monotonic() < until, "a process stays"
        time.sleep(0.02)


def test_after_somebody_has_ended_the_child_a_file_is_read_by_the_next_one(child: file_reader.Reader) -> None:
    os.kill(child.pid, 9)
    assert isinstance(source_of_the_screen(Path(__file__)), SourceFile)
    assert parsing_works()


def test_an_answer_that_is_nonsense_is_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    path = next(one for one in maps.executable(ME) if "/libc" in one.path)
    lies = (
        [["1", "f", 2, "x"]],
        [[1, "f" * 5000, 2, Caller.NEXT.value]],
        [[1, "f", -1, Caller.NEXT.value]],
        [[]],
    )
    for lie in lies:
        monkeypatch.setattr(file_reader.Talk, "request", lambda _self, _question, lie=lie: lie)
        lookups = Lookups()
        while True:
            try:
                assert lookups.lookup(path, (0x30000, True)) is None
                break
            except NotYet:
                lookups.wait(5.0)
        lookups.close()


def test_a_hole_where_there_was_a_file_is_no_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / RUNTIME
    path.write_bytes(b"x")
    identity = identity_of(path)
    path.unlink()
    with pytest.raises(OSError, match="No such file") as told:
        untrusted_files.opened(path, identity)
    assert told.value.errno == errno.ENOENT
    assert not programs.find([1 << 22])
