"""Kernels compute nothing: memory reads as zero but for what was put there and is read as it was written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simgpu_programs.harness import Bench

_HEAD = (
    "import ctypes\nc = Cuda(); s = c.stream(); d = c.malloc(1 << 20).value\n"
    "def put(at, data, pinned=False):\n"
    "    h = data\n"
    "    if pinned:\n"
    "        h = c.pinned(len(data)); ctypes.memmove(h, data, len(data))\n"
    "    assert c.copy_async(ctypes.c_void_p(d + at), h, len(data), H2D, s) == 0\n"
    "def get(at, n, pinned=False):\n"
    "    h = c.pinned(n) if pinned else ctypes.create_string_buffer(b'?' * n, n)\n"
    "    assert c.copy_async(h, ctypes.c_void_p(d + at), n, D2H, s) == c.StreamSynchronize(s) == 0\n"
    "    return ctypes.string_at(h, n)\n"
    "def within(to, at, n):\n"
    "    assert c.copy_async(ctypes.c_void_p(d + to), ctypes.c_void_p(d + at), n, D2D, s) == 0\n"
    "def fill(at, value, n):\n"
    "    assert c.MemsetAsync(ctypes.c_void_p(d + at), value, ctypes.c_size_t(n), s) == 0\n"
    "def kernel(): assert c.launch(1000, s) == 0\n"
    "A = bytes(range(1, 101)); r = []\n"
)


def read_back(bench: Bench, body: str, **env: str) -> Any:
    """Runs reads; `r` collects whether each was as it had to be."""
    return bench.run(f"{_HEAD}{body}\nprint(json.dumps(r))", **env)


@pytest.mark.parametrize("pinned", [False, True])
def test_a_copy_is_read_back_and_what_was_never_written_is_zero(bench: Bench, pinned: bool) -> None:
    body = (
        f"put(512, A, {pinned}); r.append(get(512, 100, {pinned}) == A); r.append(get(0, 600, {pinned}))\n"
        "r[1] = r[1] == bytes(512) + A[:88]; r.append(get(4096, 8) == bytes(8))"
    )
    assert read_back(bench, body) == [True, True, True]


def test_after_a_kernel_only_what_was_written_as_a_whole_is_known(bench: Bench) -> None:
    """An allocator gives the same place to another tensor, whose content a kernel computes."""
    body = (
        "put(0, A); kernel()\n"
        "r += [get(0, 100) == A, get(0, 50) == bytes(50), get(8, 8) == bytes(8), get(0, 200) == bytes(200)]\n"
        "fill(20, 7, 40); r.append(get(20, 40) == b'\\7' * 40)\n"
        "r.append(get(0, 100) == bytes(20) + b'\\7' * 40 + bytes(40))"
    )
    assert read_back(bench, body) == [True] * 6


def test_a_scalar_is_the_result_of_the_last_kernel(bench: Bench) -> None:
    """nonzero() reads a count from memory that held something else: garbage would be a billion rows."""
    body = (
        "put(0, A[:4]); r.append(get(0, 4) == A[:4]); kernel(); r.append(get(0, 4) == bytes(4))\n"
        "put(0, A[:8]); r.append(get(0, 8) == A[:8])"
    )
    assert read_back(bench, body) == [True] * 3


def test_data_goes_with_copies_on_the_device(bench: Bench) -> None:
    body = (
        "put(0, A); within(1024, 0, 100); kernel(); within(2048, 1024, 100); r.append(get(2048, 100) == A)\n"
        "within(2048, 4096, 100); r.append(get(2048, 100) == bytes(100))"
    )
    assert read_back(bench, body) == [True, True]


def test_large_copies_carry_none_unless_told(bench: Bench) -> None:
    body = (
        "B = os.urandom(70_000); put(0, A); put(0, B); r.append(get(0, 70_000) == B)\n"
        "r.append(get(0, 70_000) == bytes(70_000)); r.append(get(0, 100) == bytes(100))"
    )
    assert read_back(bench, body) == [False, True, True]
    assert read_back(bench, body, SIMGPU_DATA_KIB="100")[0] is True


def test_memory_that_is_freed_and_given_out_again_is_empty(bench: Bench) -> None:
    body = (
        "for i in range(200):\n"
        "    p = c.malloc(4096).value; d = p; r.append(get(0, 100) == bytes(100)); put(0, A)\n"
        "    assert c.Free(ctypes.c_void_p(p)) == 0"
    )
    assert set(read_back(bench, body)) == {True}


def test_any_pieces_are_read_as_a_table_of_bytes_would_be(bench: Bench) -> None:
    """Random writes and reads against memory that forgets nothing, without a kernel."""
    body = (
        "import random\nrandom.seed(5); m = bytearray(3000)\n"
        "for _ in range(600):\n"
        "    a = random.randrange(2900); n = random.randrange(1, 100); x = random.randrange(4)\n"
        "    if x == 0: fill(a, x + 3, n); m[a:a + n] = bytes([x + 3]) * n\n"
        "    elif x == 1: b = random.randrange(2900); within(a, b, n); m[a:a + n] = m[b:b + n]\n"
        "    elif x == 2: b = os.urandom(n); put(a, b); m[a:a + n] = b\n"
        "    else: r.append(get(a, n) == m[a:a + n])\n"
        "r.append(get(0, 3000) == m)"
    )
    result = read_back(bench, body)
    assert set(result) == {True}
    assert len(result) > 100


def test_a_copy_moves_its_data_when_its_turn_comes(bench: Bench) -> None:
    """Behind a host function it waits for it, and reads what is there then."""
    body = (
        "h = c.pinned(100); ctypes.memset(h, 1, 100)\n"
        "@ctypes.CFUNCTYPE(None, ctypes.c_void_p)\n"
        "def call(_): time.sleep(0.05); ctypes.memset(h, 2, 100)\n"
        "c.LaunchHostFunc(s, call, None)\n"
        "c.copy_async(ctypes.c_void_p(d), h, 100, H2D, s); within(512, 0, 100)\n"
        "r.append(get(512, 100) == b'\\2' * 100)"
    )
    assert read_back(bench, body) == [True]
