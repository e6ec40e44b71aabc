"""Both ring buffers are read past their ends, and map no more than they need: what is mapped is resident."""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from probes import schema
from probes.ebpf.bpf_ring import CHUNK_RECORDS, Ring
from probes.schema import STRIDE_BYTES
from probes.stacks.stackring import StackRing
from tests.soak.machine import RING_BYTES, KernelRing

PAGE = os.sysconf("SC_PAGE_SIZE")
SMALL = 4 * PAGE
BUSY, DISCARDED = 1 << 31, 1 << 30


class Stacks:
    """The kernel's end of a ring buffer of records of different sizes."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("stacks-of-a-test", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, 2 * PAGE + 2 * SMALL)
        self._map = mmap.mmap(self.descriptor, 2 * PAGE + 2 * SMALL)
        self._ends = [np.frombuffer(self._map, np.uint64, 1, at) for at in (0, PAGE)]

    @property
    def waiting(self) -> int:
        return int(self._ends[1][0]) - int(self._ends[0][0])

    def write(self, record: bytes, flags: int = 0) -> int:
        """Puts a record behind what is there; returns where its header is."""
        at = int(self._ends[1][0])
        data = struct.pack("<II", len(record) | flags, 0) + record + bytes(-len(record) % 8)
        assert self.waiting + len(data) <= SMALL
        for place, byte in enumerate(data, at):
            for copy in (0, SMALL):  # the data is there twice in a row
                self._map[2 * PAGE + place % SMALL + copy] = byte
        self._ends[1][0] = at + len(data)
        return at

    def finish(self, at: int, size: int) -> None:
        """The record there is busy no more."""
        for copy in (0, SMALL):
            struct.pack_into("<I", self._map, 2 * PAGE + at % SMALL + copy, size)


@pytest.fixture
def stacks() -> Iterator[Stacks]:
    made = Stacks()
    yield made
    os.close(made.descriptor)


def mapped(descriptor: int) -> int:
    """Bytes of a file in memory that this process maps, its kernel's end left out."""
    name = os.readlink(f"/proc/self/fd/{descriptor}")
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(name)]
    spans = [re.match(r"([0-9a-f]+)-([0-9a-f]+)", line) for line in lines]
    sizes = sorted(int(span[2], 16) - int(span[1], 16) for span in spans if span)
    return sum(sizes[:-1])


def test_records_are_read_around_the_end_of_the_ring_and_its_data_is_mapped_once() -> None:
    kernel, left, seen = KernelRing(), 40_000, 0
    ring = Ring(kernel.descriptor, RING_BYTES)
    assert RING_BYTES % STRIDE_BYTES  # so that some lie across the end
    while left:
        count = min(left, RING_BYTES // STRIDE_BYTES)
        records = schema.empty(count)
        records["t_end"] = np.arange(seen, seen + count)
        kernel.write(records)
        left -= count
        while len(read := ring.read()):
            assert read["t_end"].tolist() == list(range(seen, seen + len(read)))
            seen += len(read)
    assert seen == 40_000
    room = CHUNK_RECORDS * STRIDE_BYTES + 3 * PAGE
    assert RING_BYTES < mapped(kernel.descriptor) <= RING_BYTES + room
    ring.close()
    os.close(kernel.descriptor)


def test_stacks_of_all_sizes_are_read_around_the_end(stacks: Stacks) -> None:
    ring = StackRing(stacks.descriptor, SMALL)
    for turn in range(60):
        written = [bytes([turn, row]) * (7 + 131 * turn % 1500 + row) for row in range(3)]
        for record in written:
            stacks.write(record)
        stacks.write(b"taken back", DISCARDED)
        assert list(ring.read()) == written
        assert stacks.waiting == 0
    ring.close()


def test_a_full_ring_of_stacks_is_read_whole_from_within_a_page(stacks: Stacks) -> None:
    ring = StackRing(stacks.descriptor, SMALL)
    stacks.write(bytes(PAGE + 17))
    assert len(list(ring.read())) == 1
    written = [bytes([row]) * (PAGE - 8) for row in range(4)]
    for record in written:
        stacks.write(record)
    assert stacks.waiting == SMALL
    assert list(ring.read()) == written
    ring.close()


def test_a_stack_that_is_being_written_waits_with_all_behind_it(stacks: Stacks) -> None:
    ring = StackRing(stacks.descriptor, SMALL)
    stacks.write(b"first")
    at = stacks.write(b"second", BUSY)
    stacks.write(b"third")
    assert list(ring.read()) == [b"first"]
    stacks.finish(at, len(b"second"))
    assert list(ring.read()) == [b"second", b"third"]
    ring.close()


def test_a_ring_of_stacks_is_mapped_only_while_it_is_read(stacks: Stacks) -> None:
    ring = StackRing(stacks.descriptor, SMALL)
    stacks.write(b"one")
    reading = ring.read()
    assert next(reading) == b"one"
    assert mapped(stacks.descriptor) == 3 * PAGE
    assert list(reading) == []
    assert mapped(stacks.descriptor) == 2 * PAGE
    ring.close()


def test_stacks_stay_where_the_system_refuses_to_map_them(
    stacks: Stacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = StackRing(stacks.descriptor, SMALL)
    stacks.write(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", lambda *_, **__: (_ for _ in ()).throw(OSError(12, "no memory")))
        assert list(ring.read()) == []
    assert list(ring.read()) == [b"one"]
    ring.close()
