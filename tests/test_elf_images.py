"""What is read of an ELF file, field by field: files made here by the System V ABI."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from probes.code import elf
from probes.files.untrusted_files import File, opened

LOAD, DYNAMIC, NOTE = 1, 2, 4
STRTAB, RELA, DYNSYM, SYMTAB = 3, 4, 11, 2
CODE_AT, CODE = 0x401000, bytes(range(256))
RELATIVE, ABSOLUTE = 8, 1  # types of relocations of x86-64


@dataclass
class Made:
    """An ELF file under construction: parts behind the header, then what points to them."""

    head: bytes = b"\x7fELF\x02\x01\x01" + bytes(9)
    segments: list[tuple[int, int, int, int]] = field(default_factory=list)  # type, offset, address, size
    sections: list[tuple[int, int, int, int, int]] = field(
        default_factory=list
    )  # type, offset, size, link, entry
    data: bytes = b""

    def put(self, part: bytes) -> int:
        """Appends a part; its place in the file."""
        self.data += part
        return 64 + len(self.data) - len(part)

    def load(self, part: bytes, address: int) -> int:
        place = self.put(part)
        self.segments.append((LOAD, place, address, len(part)))
        return place

    def open(self, path: Path) -> File:
        rows = [
            struct.pack("<IIQQQQQQ", kind, 5, at, to, to, size, size + 512, 8)
            for kind, at, to, size in self.segments
        ]
        headers = [
            struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, at, size, link, 0, 8, entry)
            for kind, at, size, link, entry in self.sections
        ]
        first, second = 64 + len(self.data), 64 + len(self.data) + 56 * len(rows)
        head = self.head + struct.pack("<HHIQQQ", 3, elf.X86_64, 1, 0, first, second)
        head += struct.pack("<IHHHHHH", 0, 64, 56, len(rows), 64, len(headers), 0)
        path.write_bytes(head + self.data + b"".join(rows) + b"".join(headers))
        return opened(path)


def image(made: Made, path: Path) -> elf.Image:
    with made.open(path / "made") as file:
        found = elf.Image(file)
        found.sections  # noqa: B018
        content = file.read(0, 1 << 20)

    class Kept:
        """The file's bytes, when it is closed."""

        def read(self, offset: int, size: int) -> bytes:
            return content[offset : offset + size]

    found.file = Kept()  # type: ignore[assignment]
    return found


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 0x7E), (1, 0x46), (4, 1), (5, 2)],
    ids=["magic", "magic", "32 bits", "big-endian"],
)
def test_what_is_not_for_this_machine_is_refused(place: int, value: int, tmp_path: Path) -> None:
    head = bytearray(Made().head)
    head[place] = value
    with pytest.raises(elf.ElfError, match="64-bit little-endian"):
        image(Made(head=bytes(head)), tmp_path)


def test_half_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "half"
    path.write_bytes(Made().head + bytes(40))
    with opened(path) as file, pytest.raises(elf.ElfError, match="64-bit little-endian"):
        elf.Image(file)


def test_addresses_and_places_are_each_others_inverse_within_what_the_file_holds(tmp_path: Path) -> None:
    made = Made()
    made.put(b"x" * 24)
    places = {made.load(CODE, CODE_AT): CODE_AT, made.load(CODE[:64], 0x600000): 0x600000}
    found = image(made, tmp_path)
    for (place, address), size in zip(places.items(), (256, 64), strict=True):
        for inside in (0, 1, size - 1):
            assert found.file_offset(address + inside) == place + inside
            assert found.address(place + inside) == address + inside
        assert found.file_offset(address + size) is None, "the rest of it is in memory only"
        assert found.file_offset(address - 1) is None
    assert found.address(min(places) - 1) is None
    assert found.read(CODE_AT + 250, 6) == CODE[250:256]
    assert found.read(0x10, 8) == b""


def dynamic(tags: Sequence[tuple[int, int]], names: bytes, cut: int = 0) -> Made:
    made = Made()
    made.load(names, 0x1000)
    table = b"".join(struct.pack("<QQ", *tag) for tag in tags) + bytes(cut)
    made.segments.append((DYNAMIC, made.put(table), 0x2000, len(table)))
    return made


NAMES = b"\0libx.so.3\0other\0"


@pytest.mark.parametrize("cut", [0, 1, 9, 15])
def test_a_librarys_own_name_is_that_of_its_dynamic_section(cut: int, tmp_path: Path) -> None:
    """Also where the section ends in a part of an entry."""
    tags = [(6, 0x9999), (5, 0x1000), (10, len(NAMES)), (14, 1), (14, 11)]
    assert image(dynamic(tags, NAMES, cut), tmp_path).soname() == "libx.so.3", "the first of two counts"


@pytest.mark.parametrize(
    "tags",
    [
        [(5, 0x1000), (10, len(NAMES))],  # no name
        [(10, len(NAMES)), (14, 1)],  # no table
        [(5, 0x9000), (10, len(NAMES)), (14, 1)],  # a table that the file does not hold
        [(5, 0x1000), (14, 0)],  # a table without a size
        [(5, 0x1000), (10, 5), (14, 1)],  # a name that does not end within it
        [(5, 0x1000), (10, len(NAMES)), (14, len(NAMES))],  # one behind it
    ],
)
def test_without_a_whole_name_a_library_has_none(tags: list[tuple[int, int]], tmp_path: Path) -> None:
    assert image(dynamic(tags, NAMES), tmp_path).soname() == ""


def note(kind: int, name: bytes, desc: bytes) -> bytes:
    padded = [part + bytes(-len(part) % 4) for part in (name, desc)]
    return struct.pack("<III", len(name), len(desc), kind) + b"".join(padded)


@pytest.mark.parametrize("owner", [b"", b"G", b"GNU\0", b"Linux\0"])
def test_the_build_id_is_the_note_of_its_type_wherever_it_stands(owner: bytes, tmp_path: Path) -> None:
    made = Made()
    wanted = bytes(range(100, 120))
    for notes in (note(1, b"GNU\0", b"abc"), note(2, owner, b"12345") + note(3, owner, wanted)):
        made.segments.append((NOTE, made.put(notes), 0, len(notes)))
    assert image(made, tmp_path).build_id() == wanted.hex()


def test_no_note_of_that_type_is_no_build_id_and_a_long_one_is_cut(tmp_path: Path) -> None:
    made = Made()
    without = note(1, b"GNU\0", b"abc") + note(2, b"GNU\0", bytes(20)) + note(4, b"GNU\0", bytes(20))
    made.segments.append((NOTE, made.put(without), 0, len(without)))
    assert image(made, tmp_path).build_id() == ""
    long = note(3, b"GNU\0", bytes(range(80)))
    made.segments.append((NOTE, made.put(long), 0, len(long)))
    assert image(made, tmp_path).build_id() == bytes(range(64)).hex()


def test_a_pointer_is_what_its_relative_relocation_says_and_else_what_the_file_holds(tmp_path: Path) -> None:
    made = Made()
    made.load(struct.pack("<QQQ", 0x1111, 0x2222, 0x8877665544332211), 0x3000)
    rows = [(0x3000, ABSOLUTE, 7), (0x3008, RELATIVE | 5 << 32, 0x5555), (0x3000, RELATIVE + 1, 9)]
    table = b"".join(struct.pack("<QQq", *row) for row in rows)
    other = struct.pack("<QQq", 0x3000, RELATIVE, 0x6666)
    made.sections += [
        (STRTAB, made.put(other), len(other), 0, 24),
        (RELA, made.put(table), len(table), 0, 24),
    ]
    found = image(made, tmp_path)
    assert found.pointer(0x3000) == 0x1111, "no relocation of it is relative, and what is no table is none"
    assert found.pointer(0x3008) == 0x5555
    assert found.pointer(0x3010) == 0x8877665544332211


def symbols(made: Made, kind: int, names: Sequence[str], link: int, entry: int = 24) -> None:
    text = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    rows = b""
    for number, name in enumerate(names):
        rows += struct.pack(
            "<IBBHQQ", text.index(b"\0" + name.encode() + b"\0") + 1, 0x12, 0, 1, CODE_AT + 16 * number, 16
        )
    made.sections.append((kind, made.put(rows), len(rows), link, entry))
    made.sections.append((STRTAB, made.put(text), len(text), 0, 0))


def test_functions_are_those_of_the_dynamic_symbols_at_their_places(tmp_path: Path) -> None:
    made = Made()
    place = made.load(CODE, CODE_AT)
    symbols(made, DYNSYM, ["first", "second"], link=1)
    with made.open(tmp_path / "made") as file:
        library = elf.read(file)
    assert library.functions == {"first": place, "second": place + 16}
    assert library.sizes_at == {place: 16, place + 16: 16}


def test_only_functions_of_a_prefix_are_read_from_both_tables(tmp_path: Path) -> None:
    made = Made()
    place = made.load(CODE, CODE_AT)
    symbols(made, SYMTAB, ["cudaMalloc", "main", "cuda"], link=1)
    with made.open(tmp_path / "made") as file:
        assert elf.read_defined(file, "cuda").functions == {"cudaMalloc": place, "cuda": place + 32}
        assert elf.read_defined(file, "cudaM").functions == {"cudaMalloc": place}
        assert elf.read_defined(file, "nccl").functions == {}


def test_a_table_whose_strings_are_in_no_section_is_damage(tmp_path: Path) -> None:
    made = Made()
    made.load(CODE, CODE_AT)
    symbols(made, DYNSYM, ["first"], link=2)
    with made.open(tmp_path / "made") as file, pytest.raises(elf.ElfError, match="damaged"):
        elf.read(file)


def test_a_table_without_a_size_of_its_entries_is_none(tmp_path: Path) -> None:
    made = Made()
    made.load(CODE, CODE_AT)
    symbols(made, DYNSYM, ["first"], link=1, entry=0)
    with made.open(tmp_path / "made") as file, pytest.raises(elf.ElfError, match="no dynamic symbols"):
        elf.read(file)


def test_more_segments_than_a_library_has_are_refused(tmp_path: Path) -> None:
    for count, wrong in (
        (elf.MOST_SEGMENTS, False),
        (elf.MOST_SEGMENTS + 1, True),
        (elf.MOST_SEGMENTS + 9, True),
    ):
        made = Made(segments=[(LOAD, 0, 0, 64)] * count)
        if wrong:
            with pytest.raises(elf.ElfError, match="more than a library has"):
                image(made, tmp_path)
        else:
            assert len(image(made, tmp_path).segments) == count
