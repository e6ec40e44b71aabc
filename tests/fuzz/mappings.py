"""Lists of mappings as /proc tells them: the kernel writes the numbers, and anybody the paths."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

from probes.code import interpreter, libraries
from probes.files import maps
from probes.stacks.mappings import Mappings
from tests.fuzz import mutation
from tests.fuzz.target import Target

_PATHS = (
    b"/usr/lib/x86_64-linux-gnu/libc.so.6",
    b"/usr/local/cuda/lib64/libcudart.so.12.4.99",
    b"/usr/bin/python3.11",
    b"/tmp/a b  c (deleted)",
    b"[heap]",
    b"",
    b"/memfd:x (deleted)",
    b"anon_inode:[perf_event]",
    b"//anon",
)
_LIKE = (
    b"libcuda.so.1",
    b"libnccl.so.2",
    b"python3",
    b"libpython3.12.so.1.0",
    b" (deleted)",
    b"\\012",
    b"\xff",
)
_PID = 1 << 22  # of nobody


def _line(start: int, rights: bytes, offset: int, inode: int, path: bytes) -> bytes:
    head = b"%x-%x %s %08x 08:01 %d" % (start, start + 4096, rights, offset, inode)
    return (head.ljust(73) + path if path else head + b" ") + b"\n"


def _seeds() -> list[bytes]:
    rights = (b"r-xp", b"rw-p", b"r--s", b"---p")
    rows = [
        _line(0x7F0000000000 + n * 8192, rights[n % 4], n * 4096, n, path)
        for n, path in enumerate(_PATHS * 3)
    ]
    return [b"".join(rows), b"".join(rows[:3]), Path("/proc/self/maps").read_bytes()[:4000]]


def _mutate(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    columns = lines[at].split(b" ")
    match random.randrange(6):
        case 0:
            return mutation.some_bytes(data, random)
        case 1 if len(columns) > 4:
            place = random.randrange(5)
            columns[place] = mutation.some_bytes(columns[place], random)
            lines[at] = b" ".join(columns)
        case 2:
            lines[at] += random.choice(_LIKE) * random.choice((1, 1, 400))
        case 3:
            lines *= random.choice((2, 30))
        case _:
            lines[at] = (
                lines[at][:73] + b"/" + mutation.some_bytes(lines[at][73:], random) + random.choice(_LIKE)
            )
    return b"\n".join(lines)[:200_000]


def _run(data: bytes, _folder: Path) -> None:
    def lines(pid: int) -> object:
        return maps.whole_lines(pid, io.BytesIO(data))

    really, maps.lines_of = maps.lines_of, lines  # type: ignore[assignment]
    try:
        found = maps.executable(_PID)
        for mapping in (*found, *libraries.mappings((_PID,))):
            libraries.layer(mapping)
            interpreter.may_be(libraries.file_name(mapping.path))
            if not mapping.span[0] >= 0 or mapping.pid != _PID:
                raise AssertionError(f"{mapping} is none")
        list(maps.cut())
        maps.reported_pids.clear()
        kept = Mappings(lambda _pid: None)
        kept.heard(found, (), lambda _pid: True)
    finally:
        maps.lines_of = really


TARGET = Target(_seeds, _mutate, _run)
