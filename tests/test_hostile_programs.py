"""What a watched program calls its files, and what is in them, neither stops gputop nor is believed."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.code import elf, libraries
from probes.code.layout import CODE_DTYPE
from probes.code.source_files import is_library
from probes.files import maps
from probes.stacks import line_tracker
from probes.stacks.linetable import line_at
from probes.stacks.native_frames import Samples
from tests.opened_files import elf_of, functions_of, interpreter_of

ME = os.getpid()
NAMES = (
    "a\x0cb.so",
    "a\x0cz x 1 2:3 4 /libcudart.so.12",
    "a\x85\u2028 (deleted)",
    "  python3",
    "\x1c\x1d\x1e",
)


@pytest.fixture(params=NAMES)
def mapped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A file with an odd name whose code this process has mapped."""
    path = tmp_path / request.param.replace("/", "_")
    path.write_bytes(bytes(mmap.PAGESIZE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC):
        yield str(path)


def test_a_file_may_be_called_anything(mapped: str) -> None:
    paths = {mapping.path for mapping in maps.executable(ME)}
    assert mapped in paths
    assert {mapping.path for mapping in line_tracker.candidates(ME)} <= paths
    assert all(os.path.exists(mapping.path) for mapping in libraries.mappings((ME,)))


@pytest.mark.parametrize("number", [1 << 63, (1 << 64) - 1, 1 << 62])
def test_an_elf_file_with_impossible_numbers_is_damaged(number: int, tmp_path: Path) -> None:
    content = bytearray(Path(os.readlink("/proc/self/exe")).read_bytes()[:65536])
    struct.pack_into("<Q", content, 40, number)  # e_shoff
    path = tmp_path / "damaged.so"
    path.write_bytes(content)
    for read in (functions_of, elf_of, interpreter_of):
        with pytest.raises(elf.ElfError):
            read(path)


@pytest.mark.parametrize("minor", [11, 13])
def test_a_table_with_endless_numbers_has_no_line(minor: int) -> None:
    table = bytes([0x80 | 13 << 3 | 7]) + b"\x7f" * (CODE_DTYPE["object"].itemsize - 1)
    assert line_at(table, 1, 0, minor) is None


def test_a_sample_that_is_reported_before_its_frames_are_known_is_reported_under_its_number() -> None:
    samples, frames = Samples(), (("/app", 0, "step"),)
    assert samples.is_new(1, 5, frames)
    assert samples.number(2, 5) == 2  # its place went out, its frames wait for symbols
    assert samples.is_new(2, 5, frames)
    assert not samples.is_new(3, 5, frames)
    assert samples.number(3, 5) == 1


@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", True),
        ("/opt/app/libcudart-1a2b3c.so.12", True),
        ("/opt/app/libcuda.so.1", True),
        ("/opt/app/libtorch_cuda.so", True),
        ("/usr/bin/python3.11", True),
        ("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", True),
        ("/home/me/libcudakernels.so", False),
        ("/home/me/libtorchext.so", False),
        ("/home/me/train", False),
        ("/usr/local/lib/mytrain/train.py", False),
        ("/opt/nvidia/mine/app.py", False),
    ],
)
def test_which_files_are_libraries(path: str, *, library: bool) -> None:
    assert is_library(path) == library
