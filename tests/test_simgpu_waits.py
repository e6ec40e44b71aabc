"""What calls wait for, and how they spend the time."""

from __future__ import annotations

import pytest

from tests.simgpu_programs.harness import Bench, figures, measured, patient

_HELD = (
    "import ctypes\nc = Cuda(); c.SetDeviceFlags(int(os.environ.get('FLAGS', 0)))\n"
    "a, b, n = c.stream(0), c.stream(0), c.stream(1); e = c.event()\n"
    "@ctypes.CFUNCTYPE(None, ctypes.c_void_p)\n"
    "def call(_): time.sleep(0.03)\n"
)


@pytest.mark.parametrize("flags", ["0", "2", "4"])
@patient
def test_the_default_stream_follows_host_functions_of_blocking_streams(bench: Bench, flags: str) -> None:
    legacy, other, free, device, event = bench.run(
        _HELD + "def held(f, *x):\n"
        "    c.DeviceSynchronize(); c.LaunchHostFunc(a, call, None); c.launch(1000, None)\n"
        "    c.EventRecord(e, None); c.launch(1000, b); c.launch(1000, a); c.launch(1000, n)\n"
        "    return c.timed(f, *x)[1]\n"
        "print(json.dumps([held(c.StreamSynchronize, None), held(c.StreamSynchronize, b),\n"
        "  held(c.StreamSynchronize, n), held(c.DeviceSynchronize), held(c.EventSynchronize, e)]))",
        FLAGS=flags,
    )
    for waited in (legacy, other, device, event):
        with figures():
            assert 25 < waited < 45
    with figures():
        assert free < 10


@patient
def test_a_sync_of_the_default_stream_waits_for_blocking_streams(bench: Bench) -> None:
    blocking, nonblocking, query = bench.run(
        "c = Cuda(); b, n = c.stream(0), c.stream(1)\n"
        "def one(s):\n"
        "    c.DeviceSynchronize(); c.launch(20_000_000, s); return c.timed(c.StreamSynchronize, None)[1]\n"
        "r = [one(b), one(n)]; c.launch(20_000_000, b); print(json.dumps([*r, c.StreamQuery(None)]))"
    )
    with figures():
        assert blocking > 18
        assert nonblocking < 5
        assert query == 600


@measured  # not timed: what goes before all others has no slack to be compared with
def test_who_blocks_is_woken_when_the_work_ends(bench: Bench) -> None:
    late, plain = bench.run(
        "import ctypes\nc = Cuda(); s = c.stream(); r, p = [], []\n"
        "for _ in range(100):\n"
        "    c.launch(2_000_000, s); t = time.monotonic_ns(); assert c.StreamSynchronize(s) == 0\n"
        "    r.append(time.monotonic_ns() - t - 2_000_000)\n"
        "    t = time.monotonic_ns(); time.sleep(0.002); p.append(time.monotonic_ns() - t - 2_000_000)\n"
        "print(json.dumps([sorted(r)[10], sorted(p)[10]]))",
        SIMGPU_SYNC="block",
        SIMGPU_LATENCY_NS="0",
        SIMGPU_LAUNCH_NS="0",
    )
    with figures():
        assert late < plain - 20_000, "not a timer's slack late, 50 us, as a sleep is"


@pytest.mark.parametrize(
    ("sync", "flags", "burns"), [("spin", 0, True), ("block", 0, False), ("block", 1, True)]
)
@patient
def test_the_default_way_of_waiting_can_be_set(bench: Bench, sync: str, flags: int, burns: bool) -> None:
    _, wall, cpu = bench.run(
        f"c = Cuda(); c.SetDeviceFlags({flags}); s = c.stream(); c.launch(20_000_000, s)\n"
        "print(json.dumps(c.timed(c.StreamSynchronize, s)))",
        SIMGPU_SYNC=sync,
    )
    with figures():
        assert wall > 18
        assert (cpu > 4) is burns


@patient
def test_flags_of_a_driver_context_are_honoured(bench: Bench) -> None:
    _, wall, cpu = bench.run(
        "import ctypes\nd = ctypes.CDLL('libcuda.so.1'); x = ctypes.c_void_p(); d.cuInit(0)\n"
        "assert d.cuCtxCreate_v2(ctypes.byref(x), 4, 0) == 0\n"
        "c = Cuda(); s = c.stream(); c.launch(20_000_000, s)\n"
        "print(json.dumps(c.timed(c.StreamSynchronize, s)))"
    )
    with figures():
        assert wall > 18
        assert cpu < 3


@patient
def test_a_program_that_closes_all_descriptors_still_waits(bench: Bench) -> None:
    first, second = bench.run(
        "c = Cuda(); s = c.stream()\n"
        "def one(): c.launch(20_000_000, s); return c.timed(c.StreamSynchronize, s)\n"
        "r = [one()]; os.closerange(3, 100); r.append(one()); print(json.dumps(r))",
        SIMGPU_SYNC="block",
    )
    for _, wall, cpu in (first, second):
        with figures():
            assert 18 < wall < 40
            assert cpu < 3
