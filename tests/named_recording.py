"""A recording that names host, user, paths, commands and strangers, and the search for them in bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import msgpack  # type: ignore[import-untyped, unused-ignore]

from probes.schema import Kind
from probes.source import CLIENT, FILES, FRAMES, NOTE, PROBLEM, Sample
from replay.writer import SessionWriter
from tests import items

HOST, USER = "zebra-node17", "quentin"
SCRIPT, LIBRARY = (
    "/home/quentin/secretproj/nightjar_train.py",
    "/home/quentin/venv/lib/python3.11/site-packages/torch/x.py",
)
NATIVE = "/home/quentin/build/libnightjar.so"
COMMAND = f"python {SCRIPT} --data /mnt/falconstore/set9 --run otterrun"
STRANGER, CLIENT_NAME, CLIENT_COMMAND = "weaselsim", "badgerd", "badgerd --cfg /etc/badger/b.toml"
CONTAINER = "docker:7f3ab9c01d2e"
ORIGINALS = (
    *(HOST, USER, SCRIPT, NATIVE, COMMAND, STRANGER, CLIENT_NAME, CLIENT_COMMAND, CONTAINER),
    *("secretproj", "nightjar_train", "libnightjar", "falconstore", "otterrun", "badger", "/home/quentin"),
)


def written(path: Path) -> Path:
    """A recording that names all of them, in every kind of sample and in records."""
    header = {
        **items.HEADER,
        "machine": {"host": HOST, "kernel": "6.18", "architecture": "x86_64"},
        "command": COMMAND.split(),
        "cwd": "/home/quentin/secretproj",
    }
    writer = SessionWriter(path, header)
    writer.write(items.apis())
    # told before anybody knows who that is
    writer.write(
        Sample(
            NOTE, items.START, {"text": f"{STRANGER} of {USER} uses {SCRIPT} on {HOST}", "layer": "runtime"}
        )
    )
    writer.write(items.process(10, name="python", command=COMMAND, user=USER, uid=1007, container=CONTAINER))
    writer.write(items.names(items.START, {10: "python", 11: "loader"}))
    writer.write(items.names(items.START, {70: STRANGER}, 70))
    client = {"pid": 80, "name": CLIENT_NAME, "command": CLIENT_COMMAND, "user": USER, "uid": 1007}
    writer.write(Sample(CLIENT, items.START, client))
    stacks = [
        [[NATIVE, 0, "libnightjar.so+0x1139"], [LIBRARY, 7, "forward"], [SCRIPT, 42, "step"]],
        [[SCRIPT, 50, "main"]],
    ]
    writer.write(
        Sample(FRAMES, items.START, {"pid": [10, 10], "stack": [9 << 32, 8 << 32], "frames": stacks})
    )
    writer.write(
        Sample(FILES, items.START, {"pid": [10], "fd": [3], "what": ["file:/mnt/falconstore/set9/a.bin"]})
    )
    writer.write(
        Sample(PROBLEM, items.START, {"text": f"{SCRIPT}: not readable by {USER}, see /var/log/badger/x.log"})
    )
    writer.write(items.event(Kind.NAME, items.START + 5, pid=70, tid=70, comm=STRANGER.encode()))
    for step in range(40):
        at = items.START + step * 5 * items.MS
        writer.write(items.call(at + 10_000, 5_000, stack=9 << 32))
        writer.write(items.call(at + 900_000, 800_000, "cudaDeviceSynchronize", stack=8 << 32))
        writer.write(items.off(at + 4 * items.MS, 3 * items.MS, 0, next_pid=70, next_tid=70))
    writer.write(items.mark(1, items.START + items.SECOND))
    writer.close()
    return path


def texts(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and each chunk of it unpacked, by the reader that docs/session-format.md shows."""
    yield path.read_bytes()
    with path.open("rb") as file:
        for chunk in msgpack.Unpacker(file, strict_map_key=False, max_buffer_size=2**30):
            if isinstance(chunk, dict):
                yield repr(chunk).encode()
            elif isinstance(chunk, list):
                body = chunk[7]
                yield body if chunk[6] == "records" else zlib.decompress(body)


def held(path: Path, names: tuple[str, ...]) -> list[str]:
    """Those of the names that a file holds anywhere."""
    found = [(name, data) for data in texts(path) for name in names if name.encode() in data]
    return sorted({name for name, _ in found})
