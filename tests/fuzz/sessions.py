"""Session files: chunks with right checksums whose data is wrong, and files with any damage."""

from __future__ import annotations

import contextlib
import os
import zlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

import msgpack  # type: ignore[import-untyped, unused-ignore]

from gputop.api.reading import open_file, understood
from gputop.commands import cli
from gputop.errors import GputopError
from gputop.playback.player import frame_at
from probes.source import MARK
from replay.coding import file_format as fmt
from tests.fuzz import mutation
from tests.fuzz.session_seeds import seeds
from tests.fuzz.target import Target
from tests.screen_support import Shown

_STATUS = (0, 1, 2, 3)
_MOST = 400  # chunks
_COMMANDS = (
    ("stats",),
    ("stats", "--json"),
    ("explain",),
    ("explain", "--json"),
    ("replay", "--once"),
    ("replay", "--once", "--json", "--at", "0.5"),
    ("stream", "--jsonl"),
    ("diff",),
    ("screen",),
)


@dataclass(frozen=True, slots=True)
class _Chunk:
    kind: str
    first: int
    last: int
    count: int
    body: bytes

    def packed(self) -> bytes:
        low, high = -(1 << 63), (1 << 63) - 1
        first, last = (min(max(value, low), high) for value in (self.first, self.last))
        kind = self.kind.encode(errors="replace")[: fmt.MAX_KIND_BYTES].decode(errors="ignore")
        return fmt.pack_chunk(kind, first, last, self.count & 0xFFFFFFFF, self.body)


def _parsed(data: bytes) -> tuple[bytes, list[_Chunk]]:
    """What comes before the first chunk, and those that follow one another from there; no index."""
    at = max(data.find(fmt.MARKER), 0)
    head, chunks = data[:at], []
    while len(chunks) < _MOST:
        chunk = fmt.parse_prefix(data[at : at + fmt.MAX_PREFIX_BYTES], at)
        if chunk is None:
            break
        begin, at = at + chunk.prefix_bytes, chunk.end
        if chunk.kind != fmt.INDEX:
            body = data[begin : begin + chunk.body_bytes]
            chunks.append(_Chunk(chunk.kind, chunk.t_first, chunk.t_last, chunk.count, body))
    return head, chunks


def _mutate(data: bytes, random: Random) -> bytes:
    head, chunks = _parsed(data)
    if not chunks or random.random() < 0.1:
        return mutation.some_bytes(data, random)
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        at = random.randrange(len(chunks))
        match random.randrange(12):
            case 0:
                del chunks[at]
            case 1:
                chunks.insert(random.randrange(len(chunks) + 1), chunks[at])
            case 2:
                other = random.randrange(len(chunks))
                chunks[at], chunks[other] = chunks[other], chunks[at]
            case 3:
                chunks[at] = _other_frame(chunks[at], random)
            case _:
                chunks[at] = _other_body(chunks[at], random)
        if not chunks:
            return head
    return _joined(head, chunks, random)


def _joined(head: bytes, chunks: list[_Chunk], random: Random) -> bytes:
    if chunks[0].kind == fmt.HEADER and random.random() < 0.9:
        with contextlib.suppress(ValueError):
            head = fmt.inflate(chunks[0].body, fmt.MAX_HEADER_BYTES)
    return head + b"".join(chunk.packed() for chunk in chunks)


def _other_frame(chunk: _Chunk, random: Random) -> _Chunk:
    match random.randrange(4):
        case 0:
            return replace(chunk, first=mutation.number(chunk.first, random))
        case 1:
            return replace(chunk, last=mutation.number(chunk.last, random))
        case 2:
            return replace(chunk, count=mutation.number(chunk.count, random))
    kinds = (mutation.text(chunk.kind, random), "process", "names", "frames", "open", "gpus", MARK, "records")
    return replace(chunk, kind=random.choice(kinds))


def _other_body(chunk: _Chunk, random: Random) -> _Chunk:
    packed = chunk.kind != fmt.RECORDS
    try:
        plain = fmt.unpack(fmt.inflate(chunk.body, fmt.MAX_SAMPLE_BYTES) if packed else chunk.body)
        changed = mutation.plain(plain, random)
        body = msgpack.packb(changed, unicode_errors="replace")
    except (ValueError, OverflowError, TypeError, RecursionError):
        return replace(chunk, body=mutation.some_bytes(chunk.body, random))
    if len(body) > fmt.MAX_SAMPLE_BYTES:
        return chunk
    return replace(chunk, body=zlib.compress(body, 1) if packed else body)


# -- reading it --------------------------------------------------------------------------------------


def _run(data: bytes, folder: Path) -> None:
    path = folder / "session"
    path.write_bytes(data)
    words = _COMMANDS[zlib.crc32(data) % len(_COMMANDS)]
    other, before = str(_other(folder)), _opened()
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        contextlib.suppress(GputopError),
    ):
        _command(words, str(path), other)
    if (left := _opened() - before) > 0:  # others may be closed meanwhile, as what was garbage before
        raise AssertionError(f"{' '.join(words)}: {left} descriptors stay open")


def _opened() -> int:
    return len(os.listdir("/proc/self/fd"))


def _command(words: tuple[str, ...], path: str, other: str) -> None:
    if words == ("screen",):
        _paint(path)
        return
    name, options = cli.parse([*words, path, *([other] if words[0] == "diff" else [])])
    status = cli.dispatch(name, options)
    if status not in _STATUS:
        raise AssertionError(f"exit status {status}")


def _paint(path: str) -> None:
    """What the screen does with the frames: of a frame that could be made all is painted."""
    reader = open_file(path)
    try:
        for index in {0, len(reader.marks) // 2, len(reader.marks) - 1}:
            with understood(path):
                frame = frame_at(reader, index)
            with Shown(frame, size=(80, 24), replay=True) as screen:
                screen.text(200, 50)
    finally:
        reader.close()


@cache
def _first() -> bytes:
    return seeds()[0]


def _other(folder: Path) -> Path:
    path = folder / "intact"
    if not path.exists():
        path.write_bytes(_first())
    return path


TARGET = Target(seeds, _mutate, _run)
