"""What programs must know of the kernel is read once: the next start takes it from where it is kept."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from probes.ebpf.build import bpf_cache, btf
from probes.ebpf.build.kept_layout import layout_of

pytestmark = pytest.mark.skipif(not btf.VMLINUX.exists(), reason="the kernel has no type information")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose types were read."""
    found: list[Path] = []
    whole = btf.read_layout

    def read(path: Path = btf.VMLINUX) -> btf.KernelLayout:
        found.append(path)
        return whole(path)

    monkeypatch.setattr(btf, "read_layout", read)
    return found


def test_a_second_start_knows_the_same_and_reads_no_types(tmp_path: Path, reads: list[Path]) -> None:
    first = layout_of(btf.VMLINUX, tmp_path / "bpf")
    assert reads == [btf.VMLINUX]
    assert layout_of(btf.VMLINUX, tmp_path / "bpf") == first == btf.read_layout()
    assert len(reads) == 2, "the one here"


def test_another_kernel_is_another_one(tmp_path: Path, reads: list[Path]) -> None:
    other = tmp_path / "vmlinux"
    other.write_bytes(btf.VMLINUX.read_bytes() + b"\0")
    for path in (btf.VMLINUX, other, btf.VMLINUX, other):
        layout_of(path, tmp_path / "bpf")
    assert reads == [btf.VMLINUX, other]


def test_what_gputop_asks_for_is_part_of_it(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout_of(btf.VMLINUX, tmp_path / "bpf")
    monkeypatch.setattr(btf, "OPTIONAL", btf.OPTIONAL | {"task_struct": ("se",)})
    layout_of(btf.VMLINUX, tmp_path / "bpf")
    assert len(reads) == 2


@pytest.mark.parametrize("kept", [b"", b"{", b"[1]", b'{"offsets": {}, "more": 1}'])
def test_what_is_no_layout_is_not_mistaken_for_one(kept: bytes, tmp_path: Path, reads: list[Path]) -> None:
    known = layout_of(btf.VMLINUX, tmp_path / "bpf")
    (entry,) = (tmp_path / "bpf").iterdir()
    bpf_cache.write(tmp_path / "bpf", entry.name, kept)
    assert layout_of(btf.VMLINUX, tmp_path / "bpf") == known
    assert len(reads) == 2


def test_where_nothing_can_be_kept_types_are_read(tmp_path: Path, reads: list[Path]) -> None:
    (tmp_path / "bpf").write_text("a file")
    assert layout_of(btf.VMLINUX, tmp_path / "bpf") == layout_of(btf.VMLINUX, tmp_path / "bpf")
    assert len(reads) == 2


def test_a_kernel_without_types_is_reported_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(btf.BtfError, match="CONFIG_DEBUG_INFO_BTF"):
        layout_of(tmp_path / "none", tmp_path / "bpf")


GROWTH = """
from probes.ebpf.build import btf, kept_layout
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])
kept_layout._key_of(btf.VMLINUX.read_bytes())
before = resident()
btf.read_layout()
print(resident() - before)
"""


def test_what_reading_the_types_takes_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert int(done.stdout) * mmap.PAGESIZE < btf.VMLINUX.stat().st_size / 2
