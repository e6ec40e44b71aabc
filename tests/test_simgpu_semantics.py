"""A program sees the timing and the errors of a real GPU: the explanation is tuned to nothing kinder."""

from __future__ import annotations

import time

import pytest

from tests.simgpu_programs.harness import Bench, figures, measured, patient
from tests.waiting import HANGS_S


@pytest.mark.parametrize("library", ["libcudart.so.12", "libcudart.so.13"])
@patient
def test_a_kernel_lasts_what_its_argument_says(bench: Bench, library: str) -> None:
    code, wall, cpu = bench.run(
        "c = Cuda(); s = c.stream(); c.launch(1000, s); c.StreamSynchronize(s)\n"
        "c.launch(5_000_000, s); print(json.dumps(c.timed(c.StreamSynchronize, s)))",
        TEST_CUDART=library,
    )
    assert code == 0
    with figures():
        assert 4.5 < wall < 9
        assert cpu > 0.4 * wall, "a sync spins unless told otherwise"


@patient
def test_a_sync_blocks_when_told_to(bench: Bench) -> None:
    code, wall, cpu = bench.run(
        "c = Cuda(); assert c.SetDeviceFlags(4) == 0; s = c.stream()\n"
        "c.launch(20_000_000, s); print(json.dumps(c.timed(c.StreamSynchronize, s)))"
    )
    assert code == 0
    with figures():
        assert 19 < wall < 30
        assert cpu < 3


@patient
@pytest.mark.timed
def test_a_blocking_event_blocks_and_a_plain_one_spins(bench: Bench) -> None:
    blocking, plain = bench.run(
        "c = Cuda(); s = c.stream()\n"
        "def one(flags):\n"
        "    e = c.event(flags); c.launch(20_000_000, s); c.EventRecord(e, s)\n"
        "    return c.timed(c.EventSynchronize, e)\n"
        "print(json.dumps([one(1), one(0)]))"
    )
    with figures():
        assert 19 < blocking[1] < 30
        assert blocking[2] < 3
        assert plain[2] > 10


@measured  # the program may stand still while its kernel runs
def test_a_query_says_not_ready_until_the_work_is_done(bench: Bench) -> None:
    result = bench.run(
        "c = Cuda(); s = c.stream(); e = c.event()\n"
        "r = [c.EventQuery(e)]\n"
        "c.launch(300_000_000, s); c.EventRecord(e, s)\n"
        "r += [c.StreamQuery(s), c.EventQuery(e), c.GetLastError()]\n"
        "c.StreamSynchronize(s); r += [c.StreamQuery(s), c.EventQuery(e)]\n"
        "print(json.dumps(r))"
    )
    with figures():
        assert result == [0, 600, 600, 0, 0, 0]


@patient
def test_elapsed_time_between_events_is_device_time(bench: Bench) -> None:
    ms = bench.run(
        "import ctypes\nc = Cuda(); s = c.stream(); a = c.event(); b = c.event()\n"
        "c.launch(1000, s); c.EventRecord(a, s); c.launch(7_000_000, s); c.EventRecord(b, s)\n"
        "c.StreamSynchronize(s); ms = ctypes.c_float()\n"
        "assert c.EventElapsedTime(ctypes.byref(ms), a, b) == 0\nprint(ms.value)"
    )
    with figures():
        assert 6.99 < ms < 7.5


def test_memory_runs_out_and_comes_back(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); p = ctypes.c_void_p(); G = 1 << 30\n"
        "size = ctypes.c_size_t\nfree, total = size(), size()\n"
        "r = [c.Malloc(ctypes.byref(p), size(2 * G))]\n"
        "r += [c.Malloc(ctypes.byref(ctypes.c_void_p()), size(3 * G)), c.GetLastError(), c.GetLastError()]\n"
        "c.MemGetInfo(ctypes.byref(free), ctypes.byref(total)); r += [total.value, free.value]\n"
        "r += [c.Free(p), c.Malloc(ctypes.byref(p), size(3 * G)), c.Free(ctypes.c_void_p(64))]\n"
        "print(json.dumps(r))",
        SIMGPU_MEMORY_MIB="4096",
    )
    assert result[:4] == [0, 2, 2, 0]
    assert result[4:6] == [4 << 30, (2 << 30) - (256 << 20)]
    assert result[6:] == [0, 0, 1]


def test_data_comes_back_as_it_was_written(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); n = 300_000; d, e = c.malloc(n), c.malloc(n)\n"
        "src = os.urandom(n); back = ctypes.create_string_buffer(n)\n"
        "assert [c.copy(d, src, n, H2D), c.copy(e, d, n, 4), c.copy(back, d, n, 4)] == [0, 0, 0]\n"
        "ok = back.raw == src\n"
        "assert c.Memset(d, 7, ctypes.c_size_t(100)) == 0 and c.copy(back, d, 100, D2H) == 0\n"
        "z = ctypes.c_size_t\n"
        "assert c.Memcpy2D(e, z(64), src, z(100), z(50), z(10), H2D) == 0\n"
        "rows = ctypes.create_string_buffer(500)\n"
        "assert c.Memcpy2D(rows, z(50), e, z(64), z(50), z(10), D2H) == 0\n"
        "print(json.dumps([ok, back.raw[:100] == b'\\7' * 100,\n"
        "  rows.raw == b''.join(src[i * 100:i * 100 + 50] for i in range(10))]))",
        SIMGPU_DATA_KIB="300",
    )
    assert result == [True, True, True]
    (process,) = bench.processes()
    assert process.bytes_h2d == 300_000 + 500
    assert process.bytes_d2h == 300_000 + 100 + 500
    assert process.bytes_d2d == 300_000


@patient
def test_a_pageable_copy_waits_for_its_stream_and_a_pinned_one_does_not(bench: Bench) -> None:
    pageable, pinned = bench.run(
        "c = Cuda(); s = c.stream(); n = 1 << 20; d = c.malloc(n); host = bytes(n); pin = c.pinned(n)\n"
        "def one(src):\n"
        "    c.launch(20_000_000, s); r = c.timed(c.copy_async, d, src, n, H2D, s)\n"
        "    c.StreamSynchronize(s); return r\n"
        "print(json.dumps([one(host), one(pin)]))"
    )
    assert pageable[0] == pinned[0] == 0
    with figures():
        assert pageable[1] > 19
        assert pinned[1] < 5


@pytest.mark.parametrize("where", ["copy", "sync"])
@patient
def test_a_copy_to_pageable_memory_waits_where_the_setting_says(bench: Bench, where: str) -> None:
    copy, sync = bench.run(
        "import ctypes\nc = Cuda(); s = c.stream(); d = c.malloc(64)\n"
        "host = ctypes.create_string_buffer(64); c.launch(20_000_000, s)\n"
        "a = c.timed(c.copy_async, host, d, 64, D2H, s)\n"
        "b = c.timed(c.StreamSynchronize, s); print(json.dumps([a[1], b[1]]))",
        SIMGPU_D2H=where,
    )
    waited, free = (copy, sync) if where == "copy" else (sync, copy)
    with figures():
        assert waited > 18
        assert free < 5


@patient
def test_copies_take_bytes_over_bandwidth(bench: Bench) -> None:
    code, wall, _ = bench.run(
        "c = Cuda(); n = 32 << 20; d = c.malloc(n); p = c.pinned(n); c.copy(d, p, 1, H2D)\n"
        "print(json.dumps(c.timed(c.copy, d, p, n, H2D)))",
        SIMGPU_PCIE_GBPS="2",
    )
    assert code == 0
    with figures():
        assert 16 < wall < 25  # 33.5 MB at 2 GB/s


@patient
def test_the_legacy_stream_waits_for_blocking_streams_only(bench: Bench) -> None:
    blocking, nonblocking, per_thread = bench.run(
        "c = Cuda()\n"
        "def one(s, suffix=''):\n"
        "    c.DeviceSynchronize(); c.launch(20_000_000, s); c.launch(1000, None, suffix=suffix)\n"
        "    return c.timed(getattr(c, 'StreamSynchronize' + suffix), None)[1]\n"
        "print(json.dumps([one(c.stream(0)), one(c.stream(1)), one(c.stream(0), '_ptsz')]))"
    )
    with figures():
        assert blocking > 18
        assert nonblocking < 5
        assert per_thread < 5, "a per-thread default stream does not wait for other blocking streams"


@patient
def test_blocking_streams_wait_for_the_legacy_stream(bench: Bench) -> None:
    blocking, nonblocking = bench.run(
        "c = Cuda()\n"
        "def one(s):\n"
        "    c.DeviceSynchronize(); c.launch(20_000_000, None); c.launch(1000, s)\n"
        "    return c.timed(c.StreamSynchronize, s)[1]\n"
        "print(json.dumps([one(c.stream(0)), one(c.stream(1))]))"
    )
    with figures():
        assert blocking > 18
        assert nonblocking < 5


@patient
def test_streams_wait_for_events_of_others(bench: Bench) -> None:
    waiting, free = bench.run(
        "c = Cuda(); a, b, d = c.stream(1), c.stream(1), c.stream(1); e = c.event()\n"
        "c.launch(20_000_000, a); c.EventRecord(e, a); c.StreamWaitEvent(b, e, 0)\n"
        "c.launch(1000, b); c.launch(1000, d)\n"
        "x = c.timed(c.StreamSynchronize, d)[1]; y = c.timed(c.StreamSynchronize, b)[1]\n"
        "print(json.dumps([y, x]))"
    )
    with figures():
        assert free < 5
        assert waiting > 14


@patient
def test_a_host_function_holds_its_stream_and_those_that_wait_for_it(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); a, b = c.stream(1), c.stream(1); e = c.event(); seen = []\n"
        "@ctypes.CFUNCTYPE(None, ctypes.c_void_p)\n"
        "def call(_): seen.append(threading.get_native_id()); time.sleep(0.03)\n"
        "c.launch(1000, a); c.LaunchHostFunc(a, call, None); c.EventRecord(e, a)\n"
        "c.StreamWaitEvent(b, e, 0); c.launch(1000, b)\n"
        "q = [c.StreamQuery(a), c.StreamQuery(b), c.EventQuery(e)]\n"
        "t = c.timed(c.StreamSynchronize, b)[1]\n"
        "print(json.dumps([q, t, len(seen), seen[0] != threading.get_native_id(), c.EventQuery(e)]))"
    )
    with figures():
        assert result[0] == [600, 600, 600]
        assert result[1] > 25
    assert result[2:] == [1, True, 0]


@patient
def test_the_queue_holds_1024_launches_and_then_blocks(bench: Bench) -> None:
    below, above = bench.run(
        "c = Cuda(); s = c.stream(); c.launch(1000, s); c.StreamSynchronize(s)\n"
        "c.launch(100_000_000, s)\n"
        "def many(n):\n"
        "    for _ in range(n): c.launch(1000, s)\n"
        "a = c.timed(many, 1023)[1]; b = c.timed(many, 1)[1]; print(json.dumps([a, b]))",
        SIMGPU_LAUNCH_NS="0",
    )
    with figures():
        assert below < 60
        assert below + above > 95
        assert above > 30


def test_memory_apart_from_addresses_counts_when_created(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); c.Free(None); d = ctypes.CDLL('libcuda.so.1'); M = 2 << 20\n"
        "z, u = ctypes.c_size_t, ctypes.c_uint64; p, h, free, total = u(), u(), z(), z()\n"
        "def left(): c.MemGetInfo(ctypes.byref(free), ctypes.byref(total)); return free.value\n"
        "before = left(); r = [d.cuMemAddressReserve(ctypes.byref(p), z(1 << 40 >> 3), z(0), u(0), u(0)),\n"
        "  d.cuMemCreate(ctypes.byref(h), z(10 * M), None, u(0)), before - left() == 10 * M,\n"
        "  d.cuMemMap(p, z(10 * M), z(0), h, u(0)), d.cuMemSetAccess(p, z(10 * M), None, z(1)),\n"
        "  d.cuMemRelease(h), before - left() == 10 * M, d.cuMemUnmap(p, z(10 * M)), left() == before,\n"
        "  d.cuMemCreate(ctypes.byref(h), z(1 << 40), None, u(0)), d.cuMemAddressFree(p, z(1 << 40 >> 3))]\n"
        "print(json.dumps(r))"
    )
    assert result == [0, 0, True, 0, 0, 0, True, 0, True, 2, 0]


@pytest.mark.parametrize("library", ["libcudart.so.12", "libcudart.so.13"])
def test_a_batch_is_its_copies(bench: Bench, library: str) -> None:
    failed = "ctypes.byref(z()), " if library.endswith("12") else ""
    result = bench.run(
        "import ctypes\nc = Cuda(); s = c.stream(); z, P = ctypes.c_size_t, ctypes.c_void_p\n"
        "d = c.malloc(20); src = ctypes.create_string_buffer(b'0123456789abcdefghij', 20)\n"
        "a = ctypes.addressof(src); dst = (P * 2)(d.value + 10, d.value); from_ = (P * 2)(a, a + 10)\n"
        "e = c.MemcpyBatchAsync(dst, from_, (z * 2)(10, 10), z(2), None, None, z(0), " + failed + "s)\n"
        "back = ctypes.create_string_buffer(20); c.StreamSynchronize(s); c.copy(back, d, 20, D2H)\n"
        "print(json.dumps([e, back.raw.decode()]))",
        TEST_CUDART=library,
    )
    assert result == [0, "abcdefghij0123456789"]
    assert bench.processes()[0].bytes_h2d == 20


def test_wrong_arguments_are_refused(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); d = c.malloc(64)\n"
        "print(json.dumps([c.launch(1, ctypes.c_void_p(0x1234560)), c.GetLastError(), c.GetLastError(),\n"
        "  c.SetDevice(9), c.EventRecord(ctypes.c_void_p(0x99), None), c.launch(1, None, 0),\n"
        "  c.copy(bytes(8), bytes(8), 8, H2D), c.Memcpy3DBatchAsync(None)]))"
    )
    assert result == [400, 400, 0, 101, 400, 98, 1, 801]


@patient
def test_starting_costs_what_it_costs_in_reality(bench: Bench) -> None:
    init, first, second = bench.run(
        "c = Cuda(); s0 = c.timed(c.Free, None)[1]; c.GetLastError()\n"
        "print(json.dumps([s0, c.timed(c.launch, 1000)[1], c.timed(c.launch, 1000)[1]]))",
        SIMGPU_INIT_MS="150",
        SIMGPU_FIRST_LAUNCH_MS="8",
    )
    with figures():
        assert 149 < init < 250
        assert 8 < first < 20
        assert second < 3


@patient
@pytest.mark.timed
@pytest.mark.long
def test_processes_take_turns_on_the_device(bench: Bench) -> None:
    body = (
        "c = Cuda(); s = c.stream(); c.launch(1000, s); c.StreamSynchronize(s)\n"
        "time.sleep(max(0, float(os.environ['AT']) - time.time()))\n"
        "t = time.time()\n"
        "while time.time() < t + 0.6: c.launch(2_000_000, s); c.StreamSynchronize(s)\n"
    )
    alone = bench.start(body, AT="0")
    alone.communicate(timeout=HANGS_S)
    at = str(time.time() + 1.0)
    both = [bench.start(body, AT=at, SIMGPU_LATENCY_NS="2000") for _ in range(2)]
    for process in both:
        process.communicate(timeout=HANGS_S)
    counts = [p.calls["cuLaunchKernel"] for p in bench.processes()]
    with figures():
        assert counts[0] > 200
        assert max(counts[1:]) < 0.8 * counts[0]
