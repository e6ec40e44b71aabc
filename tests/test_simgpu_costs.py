"""What calls cost the caller, and submissions that an observer of the usual names misses."""

from __future__ import annotations

import pytest

from gputop.simgpu import read_trace
from tests.simgpu_programs.harness import Bench, figures, measured, patient


@patient
def test_host_memory_and_modules_cost_what_is_set(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); c.Free(None); p, z = ctypes.c_void_p(), ctypes.c_size_t\n"
        "d = ctypes.CDLL('libcuda.so.1'); b = ctypes.create_string_buffer(4096)\n"
        "print(json.dumps([c.timed(c.MallocHost, ctypes.byref(p), z(4096)),\n"
        "  c.timed(c.HostAlloc, ctypes.byref(p), z(4096), 0), c.timed(c.HostRegister, b, z(4096), 0),\n"
        "  c.timed(d.cuModuleLoadData, ctypes.byref(p), b'x')]))",
        SIMGPU_HOST_ALLOC_NS="6000000",
        SIMGPU_MODULE_LOAD_NS="9000000",
    )
    assert [code for code, _, _ in result] == [0] * 4
    for (_, wall, cpu), expected in zip(result, (6, 6, 6, 9), strict=True):
        with figures():
            assert expected - 0.1 < wall < 10 * expected
            assert cpu > 0.2 * expected


@pytest.mark.parametrize("call", ["Free(d)", "FreeHost(p)"])
@pytest.mark.parametrize("flags", [0, 1])
@patient
def test_freeing_waits_for_all_work_of_the_device(bench: Bench, call: str, flags: int) -> None:
    wall, query = bench.run(
        f"c = Cuda(); s = c.stream({flags}); d = c.malloc(64); p = c.pinned(64)\n"
        f"c.launch(20_000_000, s); w = c.timed(lambda: c.{call})[1]; print(json.dumps([w, c.StreamQuery(s)]))"
    )
    with figures():
        assert wall > 18
    assert query == 0


def test_freeing_waits_for_host_functions_too(bench: Bench) -> None:
    ended = bench.run(
        "import ctypes\nc = Cuda(); s = c.stream(1); d = c.malloc(64); ended = []\n"
        "@ctypes.CFUNCTYPE(None, ctypes.c_void_p)\n"
        "def call(_): time.sleep(0.03); ended.append(1)\n"
        "c.LaunchHostFunc(s, call, None); c.Free(d); print(json.dumps(len(ended)))"
    )
    assert ended == 1


@patient
def test_staging_is_in_the_log_and_pinned_copies_need_none(bench: Bench) -> None:
    staged = 0.0
    for source in ("b'x' * n", "c.pinned(n)", "registered()"):
        _, wall, cpu = bench.run(
            "import ctypes\nc = Cuda(); n = 32 << 20; d = c.malloc(n); s = c.stream()\n"
            "def registered():\n"
            "    b = ctypes.create_string_buffer(n); c.HostRegister(b, ctypes.c_size_t(n), 0); return b\n"
            f"h = {source}; c.copy_async(d, h, n, H2D, s); c.StreamSynchronize(s)\n"
            "print(json.dumps(c.timed(c.copy_async, d, h, n, H2D, s)))"
        )
        log = bench.processes()[-1]
        assert log.bytes_h2d == 64 << 20
        if source == "b'x' * n":
            with figures():
                assert 0.5 * cpu < log.staging_ns / 1e6 - cpu < 12 * cpu, "both copies"
            staged = cpu
        else:
            assert log.staging_ns == 0
            with figures():
                assert wall < 2
                assert cpu < staged / 10, "nobody copies 32 MiB"


def test_both_interfaces_in_one_process(bench: Bench) -> None:
    result = bench.run(
        "import ctypes\nc = Cuda(); s = c.stream(); d = ctypes.CDLL('libcuda.so.1'); P = ctypes.c_void_p\n"
        "m, f = P(), P(); v = ctypes.c_uint64(3_000_000); a = (P * 1)(ctypes.addressof(v))\n"
        "e = [d.cuModuleLoadData(ctypes.byref(m), b'x')]\n"
        "e += [d.cuModuleGetFunction(ctypes.byref(f), m, b'simgpu_k')]\n"
        "e += [c.launch(2_000_000, s), d.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, a, None)]\n"
        "print(json.dumps([*e, c.StreamSynchronize(s)]))",
        SIMGPU_TRACE=str(bench.directory / "trace"),
    )
    assert result == [0] * 5
    (log,) = bench.processes()
    assert (log.calls["cudaLaunchKernel"], log.calls["cuLaunchKernel"]) == (1, 2)
    rows = read_trace(bench.directory / "trace").rows
    assert (rows["end"] - rows["start"]).tolist() == [2_000_000, 3_000_000]
    assert rows["start"][1] >= rows["end"][0]


@measured  # the program may stand still while its kernels run
def test_a_launch_through_a_private_table_passes_no_exported_name(bench: Bench) -> None:
    trace = bench.directory / "trace"
    trace.unlink(missing_ok=True)
    result = bench.run(
        "from hidden import launcher\nc = Cuda(); s = c.stream(); launch = launcher()\n"
        "e = [launch(75_000_000, s) for _ in range(4)]\n"
        "print(json.dumps([*e, c.StreamQuery(s), c.StreamSynchronize(s)]))",
        SIMGPU_TRACE=str(trace),
    )
    with figures():
        assert result == [0, 0, 0, 0, 600, 0]
    (log,) = bench.processes()
    assert not [name for name in log.calls if "Launch" in name]
    with figures():
        assert log.kernel_busy_ns == 300_000_000
    assert len(read_trace(trace).rows) == 4
