"""Collectives of little data carry it, as a framework needs that compares its ranks before it begins."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.nccl_ranks import results, start
from tests.simgpu_programs.harness import Bench

INT64, HALF, FLOAT, DOUBLE, BFLOAT16, INT32, UINT8 = 4, 6, 7, 8, 9, 2, 1
SUM, PROD, MAX, MIN, AVG = range(5)
_HEAD = (
    "z, P = ctypes.c_size_t, ctypes.c_void_p; d = c.malloc(1 << 20).value\n"
    "def put(at, data): assert c.copy_async(P(d + at), data, len(data), H2D, s) == 0\n"
    "def get(at, n):\n"
    "    h = ctypes.create_string_buffer(b'?' * n, n)\n"
    "    assert c.copy_async(h, P(d + at), n, D2H, s) == c.StreamSynchronize(s) == 0; return h.raw\n"
)


def run(bench: Bench, body: str, ranks: int = 2) -> list[Any]:
    """What each rank printed."""
    return results(start(bench, _HEAD + body, ranks=ranks))


def bfloat(value: float) -> bytes:
    return struct.pack("<f", value)[2:]


@pytest.mark.parametrize(
    ("kind", "op", "values", "expected"),
    [
        (FLOAT, SUM, [struct.pack("<f", 1.5), struct.pack("<f", 2.25)], struct.pack("<f", 3.75)),
        (DOUBLE, AVG, [struct.pack("<d", 1), struct.pack("<d", 4)], struct.pack("<d", 2.5)),
        (HALF, PROD, [struct.pack("<e", 3), struct.pack("<e", -0.5)], struct.pack("<e", -1.5)),
        (BFLOAT16, SUM, [bfloat(2), bfloat(0.5)], bfloat(2.5)),
        (INT64, MIN, [struct.pack("<q", -5), struct.pack("<q", 1 << 40)], struct.pack("<q", -5)),
        (INT32, MAX, [struct.pack("<i", -5), struct.pack("<i", -7)], struct.pack("<i", -5)),
        (UINT8, MAX, [bytes([200]), bytes([100])], bytes([200])),
    ],
)
def test_a_reduction_computes_in_the_type_that_it_is_told(
    bench: Bench, kind: int, op: int, values: list[bytes], expected: bytes
) -> None:
    body = (
        f"v = {values!r}[rank] * 5; put(0, v)\n"
        f"assert n.AllReduce(P(d), P(d + 4096), z(5), {kind}, {op}, comm, s) == 0\n"
        "print(json.dumps(get(4096, len(v)).hex()))"
    )
    assert run(bench, body) == [(expected * 5).hex()] * 2


def test_each_collective_gives_each_rank_its_part(bench: Bench) -> None:
    body = (
        "mine = bytes([10 * rank + i for i in range(1, 7)]); put(0, mine)\n"
        "r = []\n"
        "assert n.AllGather(P(d), P(d + 4096), z(6), 1, comm, s) == 0; r.append(list(get(4096, 18)))\n"
        "assert n.ReduceScatter(P(d), P(d + 4096), z(2), 1, 0, comm, s) == 0; r.append(list(get(4096, 2)))\n"
        "assert n.Reduce(P(d), P(d + 8192), z(6), 1, 0, 2, comm, s) == 0; r.append(list(get(8192, 6)))\n"
        "send = P(d) if rank == 1 else None\n"
        "assert n.Broadcast(send, P(d + 8192), z(6), 1, 1, comm, s) == 0; r.append(list(get(8192, 6)))\n"
        "assert n.Bcast(P(d), z(6), 1, 2, comm, s) == 0; r.append(list(get(0, 6)))\n"
        "print(json.dumps(r))"
    )
    gathered = [10 * rank + i for rank in range(3) for i in range(1, 7)]
    sums = [30 + 3 * i for i in range(1, 7)]
    for rank, (gather, scatter, reduce, broadcast, bcast) in enumerate(run(bench, body, ranks=3)):
        assert gather == gathered
        assert scatter == sums[2 * rank : 2 * rank + 2]
        assert reduce == (sums if rank == 2 else [0] * 6)
        assert broadcast == gathered[6:12]
        assert bcast == gathered[12:]


def test_ranks_compare_their_shapes_before_they_begin(bench: Bench) -> None:
    """As DistributedDataParallel does: how many of all, copies on the device, one tells all which."""
    body = (
        "put(0, (161).to_bytes(8, 'little')); time.sleep(0.1 * rank)\n"
        "assert n.AllGather(P(d), P(d + 1024), z(1), 4, comm, s) == 0\n"
        "for i in range(2): c.copy_async(P(d + 2048 + 512 * i), P(d + 1024 + 8 * i), 8, D2D, s)\n"
        "counts = [int.from_bytes(get(2048 + 512 * i, 8), 'little') for i in range(2)]\n"
        "shape = os.urandom(6000) if rank == 0 else bytes(6000); put(8192, shape)\n"
        "assert n.Bcast(P(d + 8192), z(750), 4, 0, comm, s) == 0\n"
        "c.copy_async(P(d + 20480), P(d + 8192), 6000, D2D, s)\n"
        "print(json.dumps([counts, get(20480, 6000).hex()]))"
    )
    (first, shape), (second, same) = run(bench, body)
    assert first == second == [161, 161]
    assert shape == same != "00" * 6000


def test_many_in_a_row_are_not_mixed_up(bench: Bench) -> None:
    body = (
        "good = 0\n"
        "for i in range(60):\n"
        "    put(0, struct.pack('<3q', i, rank, 7)); time.sleep(0.002 * (i % 3) * rank)\n"
        "    assert n.AllReduce(P(d), P(d), z(3), 4, 0, comm, s) == 0\n"
        "    good += get(0, 24) == struct.pack('<3q', 2 * i, 1, 14)\n"
        "print(json.dumps(good))"
    )
    assert run(bench, "import struct\n" + body) == [60, 60]


def test_a_large_collective_carries_none(bench: Bench) -> None:
    body = (
        "put(0, bytes(range(1, 101)))\n"
        "assert n.AllReduce(P(d), P(d + 102400), z(100000), 1, 0, comm, s) == 0\n"
        "print(json.dumps(get(102400, 100) == bytes(100)))"
    )
    assert run(bench, body) == [True, True]
