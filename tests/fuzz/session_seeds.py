"""Sessions that the mutation of session files starts from: the beginnings of recordings, and small ones."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from probes.schema import Kind, Records
from probes.source import COUNTERS, FILES, FRAMES, MARKER, NOTE, PLACES, PROBLEM, Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import items, programs

_RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
_SHORT = ("dataloader.msgpack", "numpy-sync.msgpack", "dataloader-direct.msgpack")
_MARKS = 5
_MOST_RECORDS = 1500


@cache
def seeds() -> list[bytes]:
    """Whole files, some 5 to 40 KB each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = [_beginning(_RECORDINGS / file, folder / file) for file in _SHORT]
        made.append(_written(folder / "everything", dict(items.HEADER), _everything()))
        program = _program()
        made.append(_written(folder / "program", program.header, _of(program)))
    return made


def _written(path: Path, header: dict[str, object], all_items: Iterator[Item]) -> bytes:
    writer = SessionWriter(path, header)
    for item in all_items:
        writer.write(item)
    writer.close()
    return path.read_bytes()


def _beginning(source: Path, path: Path) -> bytes:
    """The first marks of a recording with the first of their records: whatever is in it once."""
    reader = SessionReader(source)

    def some() -> Iterator[Item]:
        left = _MOST_RECORDS
        for item in reader.items_between(-1, min(_MARKS, len(reader.marks) - 1)):
            if isinstance(item, Sample):
                yield item
            elif left > 0:
                yield item[:left]
                left -= len(item)

    try:
        return _written(path, reader.header, some())
    finally:
        reader.close()


def _program() -> programs.Program:
    """A loop that copies, launches and waits, with a thread that is preempted."""
    program = programs.started()
    program.thread(11)
    for step in range(30):
        at = step * 3000
        program.call(programs.COPY_ASYNC, at, at + 30, kind=programs.H2D, bytes=1 << 20)
        program.call(programs.LAUNCH, at + 40, at + 44)
        program.call(programs.SYNC, at + 50, at + 900)
        program.off(at + 60, at + 880, at + 870, waker_pid=10, waker_tid=11)
        program.preempted(at + 1000, at + 1200, tid=11, next_pid=99, next_tid=99)
    return program


def _of(program: programs.Program) -> Iterator[Item]:
    batch: Records = program.batch()
    yield from (items.apis(), *program.samples, items.gpus(items.START, 40, [10]))
    for tick in range(3):
        end = items.START + (tick + 1) * 30 * items.MS
        part = batch[(batch["t_end"] <= end) & (batch["t_end"] > end - 30 * items.MS)]
        yield from (part, items.still_open(end, []), items.gpus(end, 50, [10]), items.mark(tick, end))


def _everything() -> Iterator[Item]:
    """One sample of each kind."""
    now = items.START + items.SECOND
    frames = [[["/app/train.py", 12, "step"], ["/lib/libc.so.6", 0, "read+0x1"]]]
    yield from (items.apis(), items.process(10, parent_pid=1, start_ns=1, uid=0), items.process(12))
    yield items.names(now, {10: "python", 11: "pt_autograd_0"})
    yield Sample(FRAMES, now, {"pid": [10], "stack": [1 << 62], "frames": frames})
    yield Sample(PLACES, now, {"time": [now - 5], "tid": [10], "stack": [1 << 62]})
    yield Sample(FILES, now, {"pid": [10], "fd": [3], "what": ["file /data/x"]})
    yield Sample(NOTE, now, {"text": "48 functions of libcudart.so.12 are traced", "layer": "runtime"})
    yield Sample(PROBLEM, now, {"text": "no GPU figures: no driver"})
    yield Sample(MARKER, now, {"text": "here"})
    counters = ("pid", "tid", "voluntary", "involuntary", "on_cpu_ns", "runnable_ns")
    yield Sample(COUNTERS, now, {**{name: [10, 11] for name in counters}, "state": ["R", "S"]})
    yield items.joined(
        [
            items.event(Kind.EXEC, items.START + 1, comm=b"python"),
            items.call(now - 5000, 900, "cudaMemcpy", bytes=4096, stack=1 << 62),
            items.off(now - 2000, 700, 300, waker_tid=11, waker_pid=10),
            items.call(now - 1000, 20, "cudaLaunchKernel", aux=77),
        ]
    )
    yield items.still_open(now, [{"op": 3, "call_since": now - 900}, {"tid": 11, "off_since": now - 100}])
    yield from (items.gpus(now, 33, [10, 12]), items.mark(1, now), items.mark(2, now + items.SECOND))
