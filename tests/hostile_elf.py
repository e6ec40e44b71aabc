"""ELF files that say more than they hold: headers, tables and names at will."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from probes.code.elf import SYMBOL

DYNSYM, SYMTAB, STRTAB, RELA = 11, 2, 3, 4
_HEAD, _SECTION, _SEGMENT = 64, 64, 56


def write(
    path: Path,
    *,
    symbols: int = 0,
    names: bytes = b"\0f\0",
    name_at: int | None = 1,
    kind: int = DYNSYM,
    tables: int = 1,
    segments: int = 1,
    claimed: int | None = None,
    padding: int = 0,
) -> Path:
    """A library.

    Args:
        path: Where.
        symbols: Functions in its table.
        names: The table of strings.
        name_at: Where all their names begin there; None: each one byte behind the one before.
        kind: Of the table.
        tables: So many section headers say that it is theirs.
        segments: Program headers, all of the whole file.
        claimed: Bytes of the table as its headers say; what it has without.
        padding: Zeros at the end, as a hole.
    """
    rows = np.zeros(symbols, SYMBOL)
    rows["info"], rows["section"], rows["size"] = 0x12, 1, 16
    rows["value"] = np.arange(symbols) % 4096
    rows["name"] = np.arange(symbols) % max(len(names) - 1, 1) if name_at is None else name_at
    content = rows.tobytes()
    at = _HEAD + segments * _SEGMENT
    strings_at, headers_at = at + len(content), at + len(content) + len(names)
    size = len(content) if claimed is None else claimed
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQ", 3, 62, 1, 0, _HEAD, headers_at)
    head += struct.pack("<IHHHHHH", 0, _HEAD, _SEGMENT, segments, _SECTION, tables + 1, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, headers_at, headers_at, 4096)
    table = struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, at, size, tables, 0, 8, 24)
    strings = struct.pack("<IIQQQQIIQQ", 0, STRTAB, 0, 0, strings_at, len(names), 0, 0, 1, 0)
    path.write_bytes(head + segment * segments + content + names + table * tables + strings)
    if padding:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size + padding)
    return path
