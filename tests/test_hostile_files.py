"""Files of others change under our eyes, are none, or say what would fill the memory."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from probes.code import elf, libraries, parsing
from probes.code.layout import OWN_BYTES, fits, own_layout, row_bytes
from probes.code.libraries import Runtime
from probes.ebpf.attacher import Attachments
from probes.files import untrusted_files
from probes.files.shared_pages import SharedPages
from probes.stacks import demangle
from probes.stacks.demangle import demangled
from tests import hostile_elf
from tests.fuzz import children
from tests.hostile_elf import RELA, SYMTAB
from tests.opened_files import functions_of, identity_of, interpreter_of
from tests.waiting import wait_until

MEMORY_BYTES = 300 << 20  # what a reader may take, numpy and all
PATIENCE_S = 60  # a machine is slow now and then; what these files took before was minutes
CUDA = "libcudart.so.12"


# -- which file it is -----------------------------------------------------------------------------


class Kernel:
    """Takes uprobes and keeps which files they would be in."""

    multi, sessions = True, False
    uprobes = {"on_entry": 1, "on_return": 2}  # noqa: RUF012

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[untrusted_files.Identity] = []
        monkeypatch.setattr("probes.ebpf.bpfcall.attach_uprobes", self._attach)

    def _attach(self, _program: int, path: str, *_places: object, **_how: bool) -> int:
        self.files.append(identity_of(Path(path)))
        return os.open("/dev/null", os.O_RDONLY)


def test_the_file_that_was_read_is_the_one_that_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hostile_elf.write(tmp_path / CUDA, symbols=1, names=b"\0cudaMalloc\0")
    victim = hostile_elf.write(tmp_path / "victim.so", symbols=1)
    kernel, parse = Kernel(monkeypatch), elf.read
    target, itself = libraries.target(path), identity_of(path)
    assert target is not None

    def swapped(file: untrusted_files.File) -> elf.Library:
        """Somebody was told by inotify that it was opened."""
        path.unlink()
        path.symlink_to(victim)
        return parse(file)

    monkeypatch.setattr(elf, "read", swapped)
    attachments = Attachments(kernel)  # type: ignore[arg-type]
    assert [one.symbols for one in attachments.attach([target])] == [1]
    attachments.close()
    assert kernel.files == [itself, itself]


def test_another_file_at_the_place_of_a_mapped_one_is_not_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hostile_elf.write(tmp_path / CUDA, symbols=1, names=b"\0cudaMalloc\0")
    kernel, target = Kernel(monkeypatch), libraries.target(path)
    assert target is not None
    path.rename(tmp_path / "kept")
    hostile_elf.write(path, symbols=1, names=b"\0cudaMalloc\0")
    attachments = Attachments(kernel)  # type: ignore[arg-type]
    assert not attachments.attach([target])
    attachments.close()
    assert not kernel.files
    assert attachments.refusals == [f"{path} cannot be probed: another file has taken its place"]


def test_what_is_no_file_is_neither_waited_for_nor_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    opens: list[int] = []
    really = os.open

    def seen(path: object, flags: int, *rest: int) -> int:
        opens.append(flags)
        return really(path, flags, *rest)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(os, "open", seen)
    for path in (tmp_path / "pipe.so", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            untrusted_files.opened(path)
    assert all(flags & os.O_PATH for flags in opens), "a device may do something when it is opened"


# -- files that become shorter --------------------------------------------------------------------


def test_a_file_that_becomes_shorter_ends_nobody(tmp_path: Path) -> None:
    """Mapped, it would be a signal that ends us."""
    path = hostile_elf.write(tmp_path / CUDA, symbols=20_000, names=b"\0cudaMalloc\0")
    functions = functions_of(path)
    pages = SharedPages()
    with untrusted_files.opened(path) as file:
        assert pages.original(file) is None
        os.truncate(path, 0)
        assert not functions.unchanged
        assert functions.function(8) is None
        assert not functions.is_behind_call(100)
        assert pages.original(file) is None
        with pytest.raises(elf.ElfError):
            elf.read(file)
    pages.close()
    functions.close()


def test_nothing_of_others_stays_mapped(tmp_path: Path) -> None:
    path = hostile_elf.write(tmp_path / CUDA, symbols=100, names=b"\0cudaMalloc\0", padding=mmap.PAGESIZE)
    pages, functions = SharedPages(), functions_of(path)
    with untrusted_files.opened(path) as file:
        pages.original(file)
        elf.read(file)
        interpreter_of(path)
        assert str(path) not in Path("/proc/self/maps").read_text()
    pages.close()
    functions.close()


def test_one_file_that_two_mounts_show_is_known_again(tmp_path: Path) -> None:
    """By its page in memory, also after it left the memory and came back elsewhere."""
    if os.geteuid() != 0:
        pytest.skip("page frames are shown to root")
    paths = [hostile_elf.write(tmp_path / name, symbols=400) for name in ("one", "two")]
    pages = SharedPages()
    known = []
    for path in paths:
        with untrusted_files.opened(path) as file:
            known += [pages.original(file), pages.original(file)]
    for path in paths:  # as overlayfs shows it: under the device of its mount
        with untrusted_files.opened(path) as file:
            device, inode = file.identity
            facts = untrusted_files.FileIdentity((device + 1, inode), file.size, file.owner)
            known.append(pages.original(untrusted_files.File(os.dup(file.descriptor), facts)))
            assert known[-1] == file.identity
    pages.close()
    assert known[:4] == [None] * 4


# -- files that say too much ----------------------------------------------------------------------

HOSTILE = {
    "names that overlap": {
        "symbols": 90_000,
        "names": bytes([0]) + b"x" * (5 << 20) + b"\0",
        "name_at": None,
    },
    "one name of five megabytes": {"symbols": 200_000, "names": b"\0" + b"x" * (5 << 20) + b"\0"},
    "names of four kilobytes": {"symbols": 90_000, "names": b"\0" + b"x" * 4000 + b"\0", "name_at": None},
    "a table for each of many sections": {"symbols": 200_000, "tables": 8000},
    "hidden tables for each of many sections": {"symbols": 200_000, "tables": 8000, "kind": SYMTAB},
    "relocations in each of many sections": {"symbols": 200_000, "tables": 8000, "kind": RELA},
    "a table as long as the file": {"symbols": 10, "claimed": 6 << 30, "padding": 8 << 30},
    "a segment for each page": {"symbols": 200_000, "segments": 60_000},
}
READER = """
import sys
from pathlib import Path
from tests.opened_files import elf_of, functions_of, interpreter_of
from probes.code import elf
from probes.code import libraries
from probes.code import parsing
from probes.code.framepointers import caller_at
path = Path(sys.argv[1])
target = libraries.program(path)
for read in (elf_of, functions_of, interpreter_of, lambda path: parsing.linked_runtime(target)):
    try:
        found = read(path)
        if read is functions_of:
            found.function(8), found.keeping()
    except elf.ElfError as error:
        print(error)
status = Path("/proc/self/status").read_text()  # ru_maxrss counts what its parent had before exec
print(int(status.partition("VmHWM:")[2].split()[0]) * 1024)
"""


@pytest.mark.parametrize("how", HOSTILE)
@pytest.mark.mainly("names that overlap", "one name of five megabytes", "a table as long as the file")
def test_a_file_takes_neither_memory_nor_time(how: str, tmp_path: Path) -> None:
    path = hostile_elf.write(tmp_path / CUDA, **HOSTILE[how])  # type: ignore[arg-type]
    if how == "a table as long as the file":
        path = path.rename(tmp_path / "hole")  # of which nothing is looked through: see below
    command = [sys.executable, "-c", READER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert int(done.stdout.splitlines()[-1]) < MEMORY_BYTES, done.stdout


def test_a_hole_of_many_gigabytes_is_not_looked_through(tmp_path: Path) -> None:
    """It costs its owner nothing, and one look at it kept every thread waiting for 13 s."""
    path = hostile_elf.write(tmp_path / "program", symbols=10, padding=1 << 40)
    target = libraries.program(path)
    assert target is not None
    began = time.monotonic()
    assert parsing.linked_runtime(target) is Runtime.ABSENT
    assert time.monotonic() - began < PATIENCE_S


def test_a_file_is_looked_through_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(bytes((1 << 20) - 3) + b"needle" + bytes(3 << 20))
    with untrusted_files.opened(path) as file:
        parts = [len(data) for data in file.chunks(1 << 30, overlap=5)]
        assert max(parts) <= 1 << 20
        assert len(parts) == 5
        assert sum(map(len, file.chunks(1 << 20))) == 1 << 20
        assert elf.contains(file, b"needle"), "it lies over the end of a part"
        assert not elf.contains(file, b"nothing")


def test_a_name_that_stands_for_gigabytes_stays_as_it_is() -> None:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    name = "_Z1fSt4pairIiiE" + "".join(f"S_IS{digits[part]}_S{digits[part]}_E" for part in range(30))
    began = time.monotonic()
    assert demangled(name) == name
    assert time.monotonic() - began < PATIENCE_S
    assert demangled("_ZN4some4partEi") == "some::part(int)", "the next one has its answer"
    assert demangled("_ZN4some4part\nEi") == "_ZN4some4part\nEi"


def test_a_demangler_that_others_ended_is_started_anew() -> None:
    helper = demangle.DemanglerChild()
    assert helper.request("_Z1fv") == "f()"
    assert helper.process is not None
    helper.process.kill()
    wait_until(lambda: helper.process.poll() is not None, "its end")  # type: ignore[union-attr]
    assert helper.request("_Z1gv") == "g()"
    helper.process.kill()
    helper.process.wait()


def test_one_library_that_cannot_be_read_is_reported_and_the_next_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = hostile_elf.write(tmp_path / CUDA, symbols=10, claimed=1 << 40)
    good = hostile_elf.write(tmp_path / "libcudart.so.11", symbols=1, names=b"\0cudaMalloc\0")
    kernel = Kernel(monkeypatch)
    attachments = Attachments(kernel)  # type: ignore[arg-type]
    attached = attachments.attach(filter(None, map(libraries.target, (bad, good))))
    attachments.close()
    assert [one.target.path for one in attached] == [good]
    (refusal,) = attachments.refusals
    assert refusal.startswith(f"{bad} cannot be probed: ")


def test_an_interpreter_whose_offsets_are_out_of_reach_is_refused(tmp_path: Path) -> None:
    """Its own file tells them; the search for libraries ended with it for that turn."""
    sane = own_layout(bytes(OWN_BYTES), 13)
    assert fits(sane)
    for name in ("interpreters", "next_interpreter", "threads", "first_instruction"):
        assert not fits(replace(sane, **{name: 1 << 32}))
        row_bytes(replace(sane, **{name: (1 << 32) - 1}))


def test_a_demangler_that_answers_twice_is_not_asked_again() -> None:
    """Its second line would be reported as the meaning of the next name."""
    with children.saying(b"some::part(int)\nanother::one()\n") as process:
        helper = demangle.DemanglerChild()
        helper.process = process
        assert helper.request("_ZN4some4partEi") is None
        assert helper.process is None
